// SPDX-License-Identifier: Apache-2.0
#include "runtime/admission.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <tendon/observe/log.hpp>
#include <tendon/session/limits.hpp>

#include "session/machine.hpp"
#include "session/resolve.hpp"
#include "transport/tcp/tcp_link.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "context.admission";

HelloMessage ready_frame(const Token& ticket = {}) {
  HelloMessage ready;
  ready.kind = HelloKind::ready;
  ready.ticket = ticket;
  return ready;
}

}  // namespace

Admission::Admission(std::shared_ptr<Acceptor> acceptor, Door::Number number, OwnedFd fd,
                     std::shared_ptr<Admission> parent, bool is_unix)
    : acceptor_(std::move(acceptor)),
      number_(number),
      socket_(std::move(fd), Handshake::acceptor()),
      parent_(std::move(parent)),
      is_unix_(is_unix),
      connection_(connection_text(socket_.fd(), ConnectionEnd::acceptor)) {}

Admission::~Admission() { close_rendezvous(); }

Result<void> Admission::start() {
  const Lock lock(mutex_);
  if (finished_) return {};  // its place is gone already
  timer_ = engine().add_timed(parent_ == nullptr ? acceptor_->due(number_) : kHandshakeTimeout,
                              weak_from_this());
  return engine().watch(socket_.fd(), EPOLLIN | EPOLLRDHUP, weak_from_this());
}

void Admission::on_time() {
  const Lock lock(mutex_);
  // What has come counts: this Context may have made no progress for a while.
  advance();
  if (finished_) return;
  const Deadline due = acceptor_->due(number_);
  if (!due.has_passed()) {
    timer_ = engine().add_timed(due, weak_from_this());
    return;
  }
  log(LogLevel::info, kWhere, "a peer did not go on with its handshake in time");
  (void)socket_.handshake().on_timeout();
  finish();
}

void Admission::cancel() {
  const Lock lock(mutex_);
  if (!finished_) finish();
}

// Leaves the acceptor's list; the connection closes unless it was released to a link.
void Admission::finish() {
  finished_ = true;
  if (socket_.fd() >= 0) {
    engine().forget(socket_.fd());
    (void)socket_.release();
  }
  close_rendezvous();
  engine().remove_timed(timer_);
  acceptor_->finished(number_);
}

void Admission::on_ready(int fd, std::uint32_t) {
  const auto self = shared_from_this();
  const Lock lock(mutex_);
  if (finished_) return;
  if (rendezvous_ && fd == rendezvous_.get())
    on_rendezvous();
  else
    advance();
}

void Admission::advance() {
  while (!finished_) {
    HandshakeStep step = socket_.advance();
    if (step.next == Next::read) return;
    if (step.next == Next::failed) {
      // A connector that found a better way, or none, just closes; only the odd ones are worth a
      // line.
      log(LogLevel::info, kWhere, step.error->detail);
      return finish();
    }
    if (!step.message) return finish();
    const bool has_place = acceptor_->heard(parent_ == nullptr ? number_ : parent_->number_);
    if (parent_ == nullptr && !has_place) return finish();
    const HelloMessage message = *std::move(step.message);
    bool goes_on = false;
    switch (message.kind) {
      case HelloKind::hello:
        goes_on = on_hello(message);
        break;
      case HelloKind::attach:
        goes_on = on_attach(message);
        break;
      case HelloKind::path:
        goes_on = on_path(message);
        break;
      case HelloKind::lane:
        goes_on = on_lane(message);
        break;
      case HelloKind::ready:
        goes_on = on_ready_frame();
        break;
      case HelloKind::reject:
        break;
    }
    if (!goes_on && !finished_) finish();
  }
}

bool Admission::refuse(Error error) {
  log(LogLevel::warn, kWhere, "refused a peer: " + error.detail);
  (void)socket_.reject(std::move(error));
  return false;
}

bool Admission::on_hello(const HelloMessage& hello) {
  peer_ = hello;
  if (parent_ == nullptr) {
    // Pipes opened just before are in rings that nobody looked at yet: they count.
    engine().poll_every_link();
    const auto handler = acceptor_->handler_.lock();
    if (handler == nullptr)
      return refuse({ErrorCode::unreachable, kWhere, "the listener was closed"});
    if (auto may = handler->may_open(); !may) return refuse(std::move(may).error());
    if (auto room = engine().make_room(hello.context_id); !room)
      return refuse(std::move(room).error());
  }
  HelloMessage answer = engine().hello(acceptor_->profile_);
  if (parent_ == nullptr) {
    auto ticket = engine().tickets().issue(acceptor_->tickets_as_, hello.context_id);
    if (!ticket) return refuse(std::move(ticket).error());
    answer.ticket = *ticket;
  }
  const bool may_be_here = !is_unix_ && !is_none(hello.boot_id) &&
                           hello.boot_id == answer.boot_id && hello.uid == user_id();
  if (may_be_here) {
    // Without a rendezvous the connector goes on over TCP, or says why it may not.
    auto token = open_rendezvous();
    if (token) {
      answer.token = *token;
    } else if (token.error().code == ErrorCode::too_many_open_files) {
      return refuse(std::move(token).error());
    } else {
      answer.reason = std::move(token).error().detail;
      log(LogLevel::warn, kWhere, answer.reason);
    }
  }
  return socket_.reply(answer).next != Next::failed;
}

Result<Token> Admission::open_rendezvous() {
  TENDON_TRY(directory, runtime_directory());
  TENDON_TRY(token, random_token());
  const std::string path = rendezvous_path(directory, token);
  TENDON_TRY(address, unix_socket_address(path));
  OwnedFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error(kWhere, "socket", errno);
  if (::bind(fd.get(), address.get(), address.length) != 0)
    return system_error(kWhere, "bind of the rendezvous " + path, errno);
  rendezvous_path_ = path;
  if (::listen(fd.get(), 1) != 0) return system_error(kWhere, "listen", errno);
  TENDON_CHECK(engine().watch(fd.get(), EPOLLIN, weak_from_this()));
  rendezvous_ = std::move(fd);
  return token;
}

void Admission::close_rendezvous() {
  if (rendezvous_) {
    engine().forget(rendezvous_.get());
    rendezvous_.reset();
  }
  if (!rendezvous_path_.empty()) unlink(rendezvous_path_.c_str());
  rendezvous_path_.clear();
}

void Admission::on_rendezvous() {
  OwnedFd fd(accept4(rendezvous_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd) return;
  close_rendezvous();  // one visitor, and no file is left
  acceptor_->admit(std::move(fd), shared_from_this(), true);
}

bool Admission::on_attach(const HelloMessage& attach) {
  auto proof = SameHostProof::make();
  if (!proof) return refuse(proof.error());
  if (const auto received = proof->receive_attach(socket_, attach); !received)
    return refuse(received.error());
  const bool same_peer = parent_ == nullptr || parent_->peer_->context_id == peer_->context_id;
  if (!same_peer)
    return refuse(
        {ErrorCode::protocol_violation, kWhere, "another context came to the rendezvous"});
  if (parent_ != nullptr && attach.connection != parent_->connection_) {
    return refuse({ErrorCode::permission_denied, kWhere,
                   "the proof of the same host is for the connection '" + attach.connection +
                       "', not for '" + parent_->connection_ +
                       "': somebody passes bytes on between the two"});
  }
  if (parent_ != nullptr) parent_->proved_ = true;
  proof_ = *std::move(proof);
  return proof_->send_attach(socket_, engine().doorbell_fd()).next != Next::failed;
}

bool Admission::on_ready_frame() {
  engine().forget(socket_.fd());
  auto link = proof_->make_link(socket_.release(), *peer_, engine().options().link_cap_bytes,
                                {PathKind::shm, "same host, proved by a shared mapping"});
  if (link) {
    if (parent_ != nullptr) parent_->child_linked_ = true;
    const auto added = engine().add_link(*link, LinkRole::acceptor, Profile::local);
    if (!added) log(LogLevel::warn, kWhere, added.error().detail);
  }
  return false;
}

bool Admission::on_path(const HelloMessage& path) {
  if (path.reuse == Reuse::reuse || path.path == PathKind::shm) {
    if (path.reuse == Reuse::reuse) {
      // The link may also be still on its way here; then the ticket decides.
      auto link = engine().link_for(peer_->context_id, LinkRole::acceptor, acceptor_->profile_);
      if (!link) return refuse(std::move(link).error());
    }
    (void)socket_.reply(ready_frame());
    return false;
  }
  if (engine().options().transport == Transport::shm)
    return refuse(
        {ErrorCode::not_supported, kWhere, "this listener's context takes shared memory only"});
  const Profile proved = is_unix_ || proved_ ? Profile::local : Profile::plaintext;
  if (acceptor_->profile_ == Profile::local && proved != Profile::local) {
    return refuse(
        {ErrorCode::permission_denied, kWhere,
         "profile 'local' needs the same user on the same host; the listener must be bound "
         "with Profile::plaintext for others"});
  }
  if (auto may = engine().may_add_link(identity_of(*peer_), LinkRole::acceptor, proved); !may)
    return refuse(std::move(may).error());
  std::string reason = path.reason.empty() ? "chosen by the peer" : path.reason;
  // The link takes its own descriptor: the answer below still goes through this socket.
  OwnedFd control(fcntl(socket_.fd(), F_DUPFD_CLOEXEC, 0));
  if (!control) return refuse(system_error(kWhere, "dup", errno));
  // Member by member: g++ 12 warns falsely of the cleanup of a half-made aggregate.
  TcpLinkOptions options;
  options.path = {PathKind::tcp, std::move(reason)};
  options.peer = identity_of(*peer_);
  options.cap_bytes = engine().options().link_cap_bytes;
  options.peer_cap_bytes = peer_->limits->link_cap_bytes;
  options.control = std::move(control);
  options.pool = engine().pool();
  options.lanes = std::min(engine().options().streams, peer_->limits->streams);
  options.lease = engine().options().lease;
  options.expect_signs_of_life = peer_->progress != ProgressMode::manual;
  options.gives_signs_of_life = engine().options().progress != Progress::manual;
  auto link = make_tcp_link(std::move(options));
  if (!link) return refuse(link.error());
  auto lane = acceptor_->lanes_.issue(*link);
  if (!lane) return refuse(lane.error());
  engine().forget(socket_.fd());
  if (socket_.reply(ready_frame(*lane)).next == Next::failed) return false;
  (void)socket_.release();
  if (const auto added = engine().add_link(*link, LinkRole::acceptor, proved); !added)
    log(LogLevel::warn, kWhere, added.error().detail);
  return false;
}

bool Admission::on_lane(const HelloMessage& lane) {
  const auto link = acceptor_->lanes_.take(lane.ticket);
  if (link == nullptr || link->peer().context != lane.context_id)
    return refuse({ErrorCode::permission_denied, kWhere, "no lane was expected with this ticket"});
  auto next = acceptor_->lanes_.issue(link);
  if (!next) return refuse(next.error());
  engine().forget(socket_.fd());
  if (socket_.reply(ready_frame(*next)).next == Next::failed) return false;
  if (const auto added = link->add_lane(socket_.release()); !added)
    log(LogLevel::warn, kWhere, added.error().detail);
  else
    engine().renew(*link);
  return false;
}

}  // namespace tendon::v0::detail
