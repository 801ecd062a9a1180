// SPDX-License-Identifier: Apache-2.0
#include "runtime/connect.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <tendon/session/address.hpp>

#include "runtime/backoff.hpp"
#include "runtime/handshake_socket.hpp"
#include "runtime/same_host.hpp"
#include "session/machine.hpp"
#include "session/resolve.hpp"
#include "transport/tcp/tcp_link.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "pipe.connect";

/// Wakes the caller when its socket is ready; the epoll does the rest.
class Readiness final : public FdHandler {
 public:
  void on_ready(int, std::uint32_t) override { ready_.store(true); }
  bool take() { return ready_.exchange(false); }

 private:
  std::atomic<bool> ready_{false};
};

/// A socket of this call in the engine's epoll, for as long as the object lives.
class Watch {
 public:
  static Result<Watch> make(Engine& engine, int fd, std::uint32_t events) {
    auto readiness = std::make_shared<Readiness>();
    TENDON_CHECK(engine.watch(fd, events | EPOLLET, readiness));
    return Watch(engine, fd, std::move(readiness));
  }
  Watch(Watch&& other) noexcept
      : engine_(std::exchange(other.engine_, nullptr)),
        fd_(other.fd_),
        ready_(std::move(other.ready_)) {}
  Watch& operator=(Watch&&) = delete;
  ~Watch() { stop(); }
  /// The descriptor goes on to somebody else.
  void stop() {
    if (auto* engine = std::exchange(engine_, nullptr)) engine->forget(fd_);
  }
  /// False when the deadline passed first.
  [[nodiscard]] bool wait(Deadline deadline) {
    return engine_->wait(nullptr, deadline,
                         [this] { return ready_->take() || engine_->unusable(); });
  }

 private:
  Watch(Engine& engine, int fd, std::shared_ptr<Readiness> ready)
      : engine_(&engine), fd_(fd), ready_(std::move(ready)) {}
  Engine* engine_;
  int fd_;
  std::shared_ptr<Readiness> ready_;
};

// A proof that was not finished is no proof that the peer is elsewhere.
bool says_nothing_about_the_host(ErrorCode code) {
  return code == ErrorCode::timeout || code == ErrorCode::too_many_open_files ||
         code == ErrorCode::context_closed || code == ErrorCode::forked;
}

// "10.0.0.2", "[::1]"; empty for a unix socket.
std::string local_host(int fd) {
  SocketAddress local;
  local.length = sizeof local.storage;
  auto* const address = reinterpret_cast<sockaddr*>(&local.storage);
  if (getsockname(fd, address, &local.length) != 0 || local.family() == AF_UNIX) return {};
  const std::string text = local.to_string();
  return text.substr(0, text.rfind(':'));
}

Error timed_out(std::string_view address, std::string_view doing) {
  return Error{ErrorCode::timeout, kWhere,
               "connecting to " + std::string(address) + ": the deadline passed while " +
                   std::string(doing)};
}

class Connector {
 public:
  Connector(Engine& engine, std::string_view address, Profile profile, Deadline deadline)
      : engine_(engine), address_text_(address), profile_(profile), deadline_(deadline) {}

  Result<Connected> run();

 private:
  /// A connection on which the listener has answered.
  struct Dialled {
    HandshakeSocket socket;
    Watch watch;
    HelloMessage answer;
  };
  Result<OwnedFd> open_socket(const SocketAddress& address);
  Result<OwnedFd> open_any(std::span<const SocketAddress> addresses);
  Result<Dialled> dial(std::span<const SocketAddress> addresses, const HelloMessage& first);
  Result<std::optional<Dialled>> dial_once(std::span<const SocketAddress> addresses,
                                           const HelloMessage& first);
  Result<void> check_user(int fd) const;
  Result<PathKind> agree_on_path(const HelloMessage& peer) const;
  Result<HelloMessage> exchange(HandshakeSocket& socket, Watch& watch, HandshakeStep step);
  Result<Connected> over_unix(HandshakeSocket& socket, Watch& watch, const HelloMessage& peer);
  Result<Connected> over_ip(HandshakeSocket& socket, Watch& watch, const HelloMessage& peer);
  Result<std::shared_ptr<Link>> prove_same_host(const HelloMessage& peer, std::string connection,
                                                bool keep_link);
  Result<std::shared_ptr<Link>> make_tcp(HandshakeSocket& socket, Watch& watch,
                                         const HelloMessage& peer, const HelloMessage& ready,
                                         Path path, Profile proved);
  Result<void> add_lanes(TcpLink& link, const HelloMessage& peer, Token lane_ticket);
  Error explain(Error error) const;

  Engine& engine_;
  std::string address_text_;
  Profile profile_;
  Deadline deadline_;
  SocketAddress reached_;
};

Error Connector::explain(Error error) const {
  error.detail = "connecting to " + address_text_ + ": " + error.detail;
  return error;
}

Result<OwnedFd> Connector::open_socket(const SocketAddress& address) {
  OwnedFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error(kWhere, "connecting to " + address.to_string() + ": socket", errno);
  if (address.family() != AF_UNIX) {
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  int failure = ::connect(fd.get(), address.get(), address.length) == 0 ? 0 : errno;
  if (failure == EINPROGRESS) {
    TENDON_TRY(watch, Watch::make(engine_, fd.get(), EPOLLOUT));
    if (!watch.wait(deadline_)) return timed_out(address_text_, "waiting for the first answer");
    TENDON_CHECK(engine_.usable(kWhere));
    socklen_t size = sizeof failure;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
  }
  if (failure == EAGAIN) {  // a unix listener whose backlog is full
    return Error{ErrorCode::server_busy, kWhere,
                 "connecting to " + address_text_ + ": the listener's backlog is full"};
  }
  if (failure == ENOENT && address.family() == AF_UNIX)
    failure = ECONNREFUSED;  // nobody listens there
  if (failure != 0) return system_error(kWhere, "connecting to " + address.to_string(), failure);
  return fd;
}

Result<OwnedFd> Connector::open_any(std::span<const SocketAddress> addresses) {
  std::optional<Error> first;
  for (const SocketAddress& candidate : addresses) {
    auto fd = open_socket(candidate);
    if (fd) {
      reached_ = candidate;
      return fd;
    }
    if (!first) first = fd.error();
  }
  return *first;
}

// Sends nothing, reads until the machine has a message, an end or an error.
Result<HelloMessage> Connector::exchange(HandshakeSocket& socket, Watch& watch,
                                         HandshakeStep step) {
  for (;;) {
    if (step.next == Next::failed) return explain(*std::move(step.error));
    if (step.message) return *std::move(step.message);
    step = socket.advance();
    if (step.next != Next::read) continue;
    if (!watch.wait(deadline_)) return timed_out(address_text_, "waiting for the peer's handshake");
    TENDON_CHECK(engine_.usable(kWhere));
  }
}

Result<void> Connector::check_user(int fd) const {
  if (reached_.family() != AF_UNIX) return {};
  TENDON_TRY(user, peer_user(fd));
  if (user == user_id()) return {};
  return explain({ErrorCode::permission_denied, kWhere,
                  "the listener belongs to uid " + std::to_string(user) + ", this process to uid " +
                      std::to_string(user_id()) + "; unix sockets serve one user"});
}

// Nothing: the listener has no place for a further connection. It closed this one without a word,
// or its backlog is full.
Result<std::optional<Connector::Dialled>> Connector::dial_once(
    std::span<const SocketAddress> addresses, const HelloMessage& first) {
  const auto is_closed = [](const Error& error) { return error.code == ErrorCode::peer_lost; };
  auto fd = open_any(addresses);
  if (!fd) {
    if (is_closed(fd.error()) || fd.error().code == ErrorCode::server_busy) return std::nullopt;
    return std::move(fd).error();
  }
  TENDON_CHECK(check_user(fd->get()));
  HandshakeSocket socket(*std::move(fd), Handshake::connector());
  TENDON_TRY(watch, Watch::make(engine_, socket.fd(), EPOLLIN | EPOLLRDHUP));
  auto answer = exchange(socket, watch, socket.reply(first));
  if (!answer) {
    if (is_closed(answer.error()) && !socket.has_heard()) return std::nullopt;
    return std::move(answer).error();
  }
  return Dialled{std::move(socket), std::move(watch), *std::move(answer)};
}

// Until the listener answers with anything at all.
Result<Connector::Dialled> Connector::dial(std::span<const SocketAddress> addresses,
                                           const HelloMessage& first) {
  TENDON_TRY(seed, random_token());
  std::uint64_t start = 0;
  std::memcpy(&start, seed.data(), sizeof start);
  Backoff backoff(start);
  for (std::uint64_t attempt_count = 1;; ++attempt_count) {
    auto dialled = dial_once(addresses, first);
    if (dialled && *dialled) return **std::move(dialled);
    const bool is_late = !dialled && dialled.error().code == ErrorCode::timeout;
    if (!dialled && !(is_late && attempt_count > 1)) return std::move(dialled).error();
    const auto pause = backoff.next();
    if (is_late || deadline_.remaining() <= pause) {
      return explain({ErrorCode::server_busy, kWhere,
                      "the listener had no place for a further connection until the deadline; "
                      "attempts: " +
                          std::to_string(attempt_count)});
    }
    engine_.wait(nullptr, pause, [this] { return engine_.unusable(); });
    TENDON_CHECK(engine_.usable(kWhere));
  }
}

Result<Connected> Connector::run() {
  TENDON_CHECK(engine_.usable(kWhere));
  TENDON_TRY(address, Address::parse(address_text_));
  TENDON_TRY(addresses, resolve(address, deadline_, ResolveFor::connect));
  TENDON_TRY(dialled, dial(addresses, engine_.hello(profile_)));
  auto& [socket, watch, peer] = dialled;
  if (is_none(peer.ticket))
    return explain({ErrorCode::protocol_violation, kWhere, "the peer's hello carries no ticket"});

  // One link per pair: the first of several connects makes it, the others wait for it and use it.
  bool mine = false;
  const auto settled = [&] {
    if (engine_.unusable() || engine_.connected_link(peer.context_id) != nullptr) return true;
    return mine = engine_.begin_connecting(peer.context_id);
  };
  if (!engine_.wait(nullptr, deadline_, settled))
    return timed_out(address_text_, "another call was making the link");
  TENDON_CHECK(engine_.usable(kWhere));
  if (mine) {
    const std::string local = local_host(socket.fd());
    auto made = reached_.family() == AF_UNIX ? over_unix(socket, watch, peer)
                                             : over_ip(socket, watch, peer);
    engine_.end_connecting(peer.context_id);
    if (made) made->local_host = local;
    return made;
  }
  auto found = engine_.link_for(peer.context_id, LinkRole::connector, profile_);
  if (!found) {
    (void)socket.reject(found.error());
    return explain(std::move(found).error());
  }
  auto link = *std::move(found);
  if (link == nullptr)
    return explain({ErrorCode::peer_lost, kWhere, "the link ended again at once"});
  HelloMessage path;
  path.kind = HelloKind::path;
  path.path = link->path().kind;
  path.reuse = Reuse::reuse;
  TENDON_CHECK(exchange(socket, watch, socket.reply(path)));
  return Connected{std::move(link), peer.ticket, local_host(socket.fd())};
}

// What either side insists on; `none` when neither does.
Result<PathKind> Connector::agree_on_path(const HelloMessage& peer) const {
  const PathKind ours = engine_.hello(profile_).path;
  if (ours == PathKind::none || peer.path == PathKind::none || ours == peer.path)
    return ours == PathKind::none ? peer.path : ours;
  return explain({ErrorCode::not_supported, kWhere,
                  "this side takes " + std::string(to_string(ours)) + " only, the peer " +
                      std::string(to_string(peer.path)) +
                      " only (ContextOptions::transport, "
                      "TENDON_TRANSPORT)"});
}

Result<Connected> Connector::over_unix(HandshakeSocket& socket, Watch& watch,
                                       const HelloMessage& peer) {
  TENDON_TRY(wanted, agree_on_path(peer));
  if (wanted == PathKind::tcp) {
    HelloMessage path;
    path.kind = HelloKind::path;
    path.path = PathKind::tcp;
    TENDON_TRY(ready, exchange(socket, watch, socket.reply(path)));
    TENDON_TRY(link, make_tcp(socket, watch, peer, ready,
                              {PathKind::tcp, "asked for; over a unix socket"}, Profile::local));
    return Connected{std::move(link), peer.ticket, {}};
  }
  TENDON_TRY(proof, SameHostProof::make());
  TENDON_TRY(attach, exchange(socket, watch, proof.send_attach(socket, engine_.doorbell_fd())));
  TENDON_CHECK(proof.receive_attach(socket, attach));
  HelloMessage ready;
  ready.kind = HelloKind::ready;
  if (const HandshakeStep step = socket.reply(ready); step.next == Next::failed)
    return explain(*step.error);
  watch.stop();
  TENDON_TRY(link, proof.make_link(socket.release(), peer, engine_.options().link_cap_bytes,
                                   {PathKind::shm, "same host, proved by a shared mapping"}));
  TENDON_CHECK(engine_.add_link(link, LinkRole::connector, Profile::local));
  return Connected{std::move(link), peer.ticket, {}};
}

// Meets the peer at the rendezvous named by its token, and maps each other's memory there. The
// proof is for `connection` alone: whoever passes our bytes on to a listener of ours gets nothing.
Result<std::shared_ptr<Link>> Connector::prove_same_host(const HelloMessage& peer,
                                                         std::string connection, bool keep_link) {
  TENDON_TRY(path, find_rendezvous(peer.token));
  TENDON_TRY(address, unix_socket_address(path));
  TENDON_TRY(fd, open_socket(address));
  TENDON_TRY(user, peer_user(fd.get()));
  if (user != user_id()) {
    return Error{ErrorCode::permission_denied, kWhere,
                 "the rendezvous belongs to uid " + std::to_string(user)};
  }
  HandshakeSocket socket(std::move(fd), Handshake::connector());
  TENDON_TRY(watch, Watch::make(engine_, socket.fd(), EPOLLIN | EPOLLRDHUP));
  HelloMessage hello = engine_.hello(profile_);
  TENDON_TRY(again, exchange(socket, watch, socket.reply(hello)));
  if (again.context_id != peer.context_id) {
    return Error{ErrorCode::protocol_violation, kWhere,
                 "another context answered at the rendezvous"};
  }
  TENDON_TRY(proof, SameHostProof::make());
  TENDON_TRY(attach,
             exchange(socket, watch,
                      proof.send_attach(socket, engine_.doorbell_fd(), std::move(connection))));
  TENDON_CHECK(proof.receive_attach(socket, attach));
  if (!keep_link) return std::shared_ptr<Link>();
  HelloMessage ready;
  ready.kind = HelloKind::ready;
  if (const HandshakeStep step = socket.reply(ready); step.next == Next::failed) return *step.error;
  watch.stop();
  return proof.make_link(socket.release(), peer, engine_.options().link_cap_bytes,
                         {PathKind::shm, "same host, proved by a shared mapping"});
}

Result<Connected> Connector::over_ip(HandshakeSocket& socket, Watch& watch,
                                     const HelloMessage& peer) {
  TENDON_TRY(wanted, agree_on_path(peer));
  const Token here = engine_.hello(profile_).boot_id;
  const bool must_be_proved = profile_ == Profile::local || wanted == PathKind::shm;
  std::shared_ptr<Link> link;
  bool proved = false;
  std::string why_not;
  if (is_none(here) || peer.boot_id != here)
    why_not = "another host";
  else if (peer.uid != user_id())
    why_not = "another user (uid " + std::to_string(peer.uid) + ")";
  else if (is_none(peer.token))
    why_not =
        "the peer offers no rendezvous" + (peer.reason.empty() ? "" : ", because " + peer.reason);
  else {
    auto made = prove_same_host(peer, connection_text(socket.fd(), ConnectionEnd::connector),
                                wanted != PathKind::tcp);
    proved = made.has_value();
    if (proved)
      link = *std::move(made);
    else if (says_nothing_about_the_host(made.error().code) ||
             (must_be_proved && made.error().code == ErrorCode::resource_exhausted))
      return explain(std::move(made).error());
    else
      why_not = "the proof of the same host failed: " + made.error().detail;
  }
  if (!proved && must_be_proved) {
    const bool by_profile = profile_ == Profile::local;
    (void)socket.reject({ErrorCode::permission_denied, kWhere, why_not});
    return explain({by_profile ? ErrorCode::permission_denied : ErrorCode::not_supported, kWhere,
                    by_profile
                        ? "profile 'local' needs this user on this host, but: " + why_not +
                              "; ask for profile 'plaintext' by name to go without protection "
                              "(Profile::plaintext, `tendon --insecure-plaintext`)"
                        : "transport 'shm' was asked for, but: " + why_not});
  }
  Path path{PathKind::tcp, proved ? "asked for; same host" : why_not};
  if (link != nullptr) path = link->path();
  HelloMessage choice;
  choice.kind = HelloKind::path;
  choice.path = path.kind;
  choice.reason = path.reason;
  // The link exists on both sides before the peer may hear of a pipe on it.
  if (link != nullptr) TENDON_CHECK(engine_.add_link(link, LinkRole::connector, Profile::local));
  TENDON_TRY(ready, exchange(socket, watch, socket.reply(choice)));
  if (link == nullptr) {
    TENDON_TRY(tcp, make_tcp(socket, watch, peer, ready, std::move(path),
                             proved ? Profile::local : Profile::plaintext));
    link = std::move(tcp);
  }
  return Connected{std::move(link), peer.ticket, {}};
}

Result<std::shared_ptr<Link>> Connector::make_tcp(HandshakeSocket& socket, Watch& control_watch,
                                                  const HelloMessage& peer,
                                                  const HelloMessage& ready, Path path,
                                                  Profile proved) {
  control_watch.stop();
  TENDON_TRY(link, make_tcp_link(TcpLinkOptions{
                       .path = std::move(path),
                       .peer = identity_of(peer),
                       .cap_bytes = engine_.options().link_cap_bytes,
                       .peer_cap_bytes = peer.limits->link_cap_bytes,
                       .control = socket.release(),
                       .received_already = {},
                       .pool = engine_.pool(),
                       .lease = engine_.options().lease,
                       .expect_signs_of_life = peer.progress != ProgressMode::manual,
                       .gives_signs_of_life = engine_.options().progress != Progress::manual,
                   }));
  TENDON_CHECK(engine_.add_link(link, LinkRole::connector, proved));
  // Whoever connects next would take a link that lives for a whole one.
  if (auto added = add_lanes(*link, peer, ready.ticket); !added) {
    link->fail(added.error(), false);
    return std::move(added).error();
  }
  return std::shared_ptr<Link>(std::move(link));
}

// Bulk lanes: each is a connection of its own, admitted by a token that is good once.
Result<void> Connector::add_lanes(TcpLink& link, const HelloMessage& peer, Token lane_ticket) {
  const std::uint32_t lanes = std::min(engine_.options().streams, peer.limits->streams);
  for (std::uint32_t index = 0; index < lanes; ++index) {
    HelloMessage message;
    message.kind = HelloKind::lane;
    message.context_id = engine_.id();
    message.ticket = lane_ticket;
    message.lane_index = index;
    TENDON_TRY(lane, dial({&reached_, 1}, message));
    lane_ticket = lane.answer.ticket;
    lane.watch.stop();
    TENDON_CHECK(link.add_lane(lane.socket.release()));
  }
  return {};
}

}  // namespace

Result<Connected> connect(Engine& engine, std::string_view address, Profile profile,
                          Deadline deadline) {
  return Connector(engine, address, profile, deadline).run();
}

}  // namespace tendon::v0::detail
