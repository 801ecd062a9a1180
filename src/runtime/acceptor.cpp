// SPDX-License-Identifier: Apache-2.0
#include "runtime/acceptor.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <tendon/session/limits.hpp>

#include "runtime/admission.hpp"
#include "runtime/strangers.hpp"
#include "session/bind_permission.hpp"
#include "session/holder.hpp"
#include "session/interfaces.hpp"
#include "session/machine.hpp"
#include "session/socket_names.hpp"
#include "transport/stream/secure_stream.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "listener.bind";
constexpr std::string_view kAccept = "listener.accept";
constexpr auto kLookUp = std::chrono::seconds(5);
// Most connections accepted per event, so that peers that connect fast do not delay the links.
constexpr int kMostAccepted = 16;
constexpr int kListenBacklog = static_cast<int>(kSilentPerListener);

std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Removes a unix socket file whose listener has ended, because it blocks the next bind. A file with
// a live listener is left alone.
Result<void> clear_stale(const SocketAddress& address, const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) != 0) return {};
  if (!S_ISSOCK(status.st_mode)) {
    return Error{ErrorCode::address_in_use, kWhere,
                 "unix:" + path + " exists and is not a socket: choose another path or remove it"};
  }
  OwnedFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe) return system_error(kWhere, "socket", errno);
  const bool dead =
      ::connect(probe.get(), address.get(), address.length) != 0 && errno == ECONNREFUSED;
  if (!dead) {
    const auto holder = process_behind(probe.get());
    return Error{
        ErrorCode::address_in_use, kWhere,
        "unix:" + path + " has a listener already" + (holder ? ": " + process_text(*holder) : "")};
  }
  unlink(path.c_str());
  return {};
}

std::optional<pid_t> holder_of(const Address& address, const SocketAddress& chosen) {
  if (chosen.family() != AF_UNIX) return listener_at_port(address.port());
  const OwnedFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!probe || ::connect(probe.get(), chosen.get(), chosen.length) != 0) return std::nullopt;
  return process_behind(probe.get());
}

Error cannot_bind(const Address& address, const SocketAddress& chosen, int cause) {
  Error error = system_error(kWhere, "listening on " + address.to_string(), cause);
  if (cause == EADDRINUSE) {
    if (const auto holder = holder_of(address, chosen))
      error.detail += "; it is held by " + process_text(*holder);
    return error;
  }
  if (cause != EADDRNOTAVAIL) return error;
  error.code = ErrorCode::invalid_argument;
  error.detail += "; no interface of this host has this address";
  if (const auto own = announceable_hosts(chosen.family()); own && !own->empty()) {
    error.detail += ". It has";
    for (const std::string& host : *own) error.detail += ' ' + host;
  }
  return error;
}

}  // namespace

Acceptor::Acceptor(std::shared_ptr<ContextCore> context, Security security,
                   std::weak_ptr<OpenHandler> handler)
    : context_(std::move(context)), security_(std::move(security)), handler_(std::move(handler)) {}

Acceptor::~Acceptor() { close(); }

Result<std::shared_ptr<Acceptor>> Acceptor::bind(std::shared_ptr<ContextCore> context,
                                                 std::string_view text, Security security,
                                                 std::weak_ptr<OpenHandler> handler) {
  TENDON_CHECK(context->usable(kWhere));
  TENDON_TRY(address, Address::parse(text));
  auto acceptor =
      std::make_shared<Acceptor>(std::move(context), std::move(security), std::move(handler));
  TENDON_CHECK(acceptor->open(address));
  return acceptor;
}

Result<std::shared_ptr<Acceptor>> Acceptor::without_socket(std::shared_ptr<ContextCore> context,
                                                           Security security,
                                                           std::weak_ptr<OpenHandler> handler) {
  TENDON_CHECK(check_credentials(security, kWhere));
  auto acceptor =
      std::make_shared<Acceptor>(std::move(context), std::move(security), std::move(handler));
  acceptor->tickets_as_ =
      acceptor->context_->tickets().add({acceptor->handler_, acceptor->security_.profile});
  return acceptor;
}

Result<void> Acceptor::open(const Address& address) {
  TENDON_TRY(addresses, resolve(address, kLookUp, ResolveFor::bind));
  const SocketAddress& chosen = addresses.front();
  TENDON_CHECK(may_bind(security_, chosen, address.to_string(), kWhere));
  const bool is_unix = chosen.family() == AF_UNIX;
  const bool has_file = is_unix && !address.path().starts_with('@');
  if (has_file && is_own_socket_name(name_of(address.path()))) {
    TENDON_TRY(listening, listen_at(address.path(), kListenBacklog));
    address_ = address.to_string();
    return begin(std::move(listening.fd), Place{address.path(), listening.file});
  }
  if (has_file) TENDON_CHECK(clear_stale(chosen, address.path()));
  OwnedFd fd(::socket(chosen.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error(kWhere, "listening on " + address.to_string() + ": socket", errno);
  const int on = 1;
  if (!is_unix) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), chosen.get(), chosen.length) != 0)
    return cannot_bind(address, chosen, errno);
  std::optional<Place> place;
  if (has_file) place = Place{address.path(), file_id(address.path()).value_or(FileId{})};
  if (::listen(fd.get(), kListenBacklog) != 0) return cannot_bind(address, chosen, errno);
  SocketAddress bound;
  bound.length = sizeof bound.storage;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.length);
  address_ = is_unix ? address.to_string() : bound.to_string();
  return begin(std::move(fd), std::move(place));
}

Result<void> Acceptor::begin(OwnedFd socket, std::optional<Place> place) {
  tickets_as_ = context_->tickets().add({handler_, security_.profile, address_});
  const Lock lock(mutex_);
  socket_ = std::move(socket);
  place_ = std::move(place);
  return context_->loop().watch(socket_.get(), EPOLLIN, weak_from_this());
}

Result<void> Acceptor::serve_at(const std::string& path) {
  TENDON_TRY(listening, listen_at(path, kListenBacklog));
  const Lock lock(mutex_);
  if (closed_) {
    remove_name(path, listening.file);
    return Error{ErrorCode::unreachable, kWhere, "the listener was closed"};
  }
  TENDON_CHECK(context_->loop().watch(listening.fd.get(), EPOLLIN, weak_from_this()));
  leave_locked();
  socket_ = std::move(listening.fd);
  place_ = Place{path, listening.file};
  return {};
}

void Acceptor::leave() {
  const Lock lock(mutex_);
  leave_locked();
}

void Acceptor::leave_locked() {
  if (socket_) context_->loop().forget(socket_.get());
  if (place_) remove_name(place_->path, place_->file);
  socket_.reset();
  place_.reset();
}

bool Acceptor::serves_at(const std::string& path) const {
  const Lock lock(mutex_);
  return place_ && place_->path == path && file_id(path) == place_->file;
}

void Acceptor::close() {
  if (context_->forked()) return;
  decltype(admissions_) admissions;
  {
    const Lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    admissions.swap(admissions_);
    if (socket_) context_->loop().forget(socket_.get());
    if (place_) remove_name(place_->path, place_->file);
  }
  tell_refused_strangers();
  context_->tickets().remove(tickets_as_);
  for (const auto& [number, admission] : admissions) admission->cancel();
  const Lock lock(mutex_);
  socket_.reset();
}

// Holds the lock, because the number of a closed socket may already belong to another file.
OwnedFd Acceptor::accept_one() {
  const Lock lock(mutex_);
  if (closed_) {
    errno = EBADF;
    return {};
  }
  OwnedFd fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd && (errno == EMFILE || errno == ENFILE)) {
    const int cause = errno;
    // The connection stays in the kernel's queue and epoll would report it forever: rest a moment.
    context_->loop().change(socket_.get(), 0);
    (void)context_->add_timed(std::chrono::milliseconds(100), weak_from_this());
    errno = cause;
  }
  return fd;
}

void Acceptor::on_ready(int, std::uint32_t) {
  for (int count = 0; count < kMostAccepted; ++count) {
    OwnedFd fd = accept_one();
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE) {
        say_at_pace(LogLevel::error, kAccept,
                    "this process may open no further descriptor (RLIMIT_NOFILE); peers wait in " +
                        address_);
      }
      return;
    }
    const auto source = remote_source(fd.get());
    admit(std::make_unique<SocketStream>(std::move(fd)), source);
  }
}

void Acceptor::on_time() {
  const Lock lock(mutex_);
  if (!closed_) context_->loop().change(socket_.get(), EPOLLIN);
}

// Called before a byte is read, because another user's bytes may carry descriptors.
bool Acceptor::serves(ByteStream& stream) const {
  const auto user = stream.peer().user;
  if (!user || *user == user_id()) return true;
  const Error refusal{ErrorCode::permission_denied, kAccept,
                      "this listener serves uid " + std::to_string(user_id()) + " only"};
  refuse_stranger(context_.get(), kAccept, stranger_at(stream), refusal.detail);
  auto frame = encode(rejection_of(refusal));
  const iovec piece{frame.data(), frame.size()};
  (void)stream.write({&piece, 1});
  return false;
}

Result<std::unique_ptr<ByteStream>> Acceptor::secured(std::unique_ptr<ByteStream> stream) {
  if (security_.profile != Profile::secure) return stream;
  security_.credentials->look(std::chrono::steady_clock::now());
  TENDON_TRY(secure,
             SecureStream::make(std::move(stream),
                                {.role = secure::TlsHandshake::Role::server,
                                 .credentials = secure::Credentials::latest(security_.credentials),
                                 .handshake = {.expected_peer = security_.peer,
                                               .find_session = lane_keys_.finder()},
                                 .limits = security_.credentials->rotation().records}));
  return std::unique_ptr<ByteStream>(std::move(secure));
}

void Acceptor::admit(std::unique_ptr<ByteStream> plain, const std::optional<Source>& source) {
  if (!serves(*plain)) return;
  auto secured_stream = secured(std::move(plain));
  if (!secured_stream) return say_at_pace(LogLevel::error, kAccept, secured_stream.error().detail);
  std::unique_ptr<ByteStream> stream = *std::move(secured_stream);
  const ByteStream& refused = *stream;  // valid here unless the stream is admitted
  std::shared_ptr<Admission> admission;
  {
    const Lock lock(mutex_);
    if (closed_) return;
    const Door::Number number = next_admission_++;
    if (obey(door_.enter(number, source, Deadline::Clock::now()))) {
      admission =
          std::make_shared<Admission>(shared_from_this(), number, std::move(stream), source);
      admissions_.emplace(number, admission);
    }
  }
  if (admission == nullptr)
    return refuse_stranger(context_.get(), kAccept, stranger_at(refused), kNoPlace);
  start(admission);
}

void Acceptor::admit_visitor(OwnedFd fd, std::shared_ptr<Admission> parent) {
  auto visitor = std::make_unique<RendezvousSocket>(std::move(fd));
  if (!serves(*visitor)) return;
  std::shared_ptr<Admission> admission;
  {
    const Lock lock(mutex_);
    if (closed_) return;
    const Door::Number number = next_admission_++;
    admission = std::make_shared<Admission>(shared_from_this(), number, std::move(visitor),
                                            std::move(parent));
    admissions_.emplace(number, admission);
  }
  start(admission);
}

void Acceptor::start(const std::shared_ptr<Admission>& admission) {
  if (const auto started = admission->start(); !started) {
    admission->note_refused(started.error().detail);
    admission->cancel();
  }
}

void Acceptor::say_at_pace(LogLevel level, std::string_view where, const std::string& text) {
  const auto held_back = pace_.next(text, LinePace::Clock::now());
  if (!held_back) return;
  std::string more;
  if (*held_back != 0)
    more = " (" + std::to_string(*held_back) + " times more since the last line)";
  context_->log(level, where, text + more);
}

bool Acceptor::obey(const Door::Verdict& verdict) {
  if (verdict.displaced) {
    // Deferred, because this may be called under the lock of another Admission.
    const auto displaced = admissions_.find(*verdict.displaced);
    if (displaced != admissions_.end())
      (void)context_->add_timed(Deadline::now(), displaced->second);
  }
  return verdict.stays;
}

bool Acceptor::answered(Door::Number admission) {
  const Lock lock(mutex_);
  return obey(door_.answer(admission, Deadline::Clock::now()));
}

bool Acceptor::heard(Door::Number admission) {
  const Lock lock(mutex_);
  return obey(door_.hear(admission, Deadline::Clock::now()));
}

Deadline Acceptor::due(Door::Number admission) {
  const Lock lock(mutex_);
  return Deadline::at(door_.due(admission));
}

void Acceptor::leave_door(Door::Number admission) {
  const Lock lock(mutex_);
  door_.leave(admission);
}

void Acceptor::finished(Door::Number admission) {
  const Lock lock(mutex_);
  door_.leave(admission);
  admissions_.erase(admission);
}

}  // namespace tendon::v0::detail
