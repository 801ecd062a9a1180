// SPDX-License-Identifier: Apache-2.0
#include "runtime/connect.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <tendon/session/address.hpp>

#include "runtime/connector.hpp"
#include "runtime/dial_place.hpp"
#include "runtime/link_makers.hpp"
#include "runtime/redial.hpp"
#include "runtime/stream_options.hpp"
#include "session/machine.hpp"
#include "session/resolve.hpp"
#include "transport/stream/socket_stream.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "pipe.connect";
// A frame that found no room goes on when there is some.
constexpr std::uint32_t kTalking = EPOLLIN | EPOLLOUT | EPOLLRDHUP;

// From the end of one connection of a process that dies to that of its others.
constexpr std::chrono::milliseconds kEndShowsWithin{100};

// A proof that was not finished is no proof that the peer is elsewhere.
bool says_nothing_about_the_host(ErrorCode code) {
  return code == ErrorCode::timeout || code == ErrorCode::too_many_open_files ||
         code == ErrorCode::context_closed || code == ErrorCode::forked;
}

Error timed_out(std::string_view address, std::string_view doing) {
  return Error{ErrorCode::timeout, kWhere,
               "connecting to " + std::string(address) + ": the deadline passed while " +
                   std::string(doing)};
}

}  // namespace

Error Connector::explain(Error error) const {
  error.detail = "connecting to " + address_text_ + ": " + error.detail;
  return error;
}

Result<OwnedFd> Connector::open_socket(const SocketAddress& address, Deadline deadline) {
  OwnedFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error(kWhere, "connecting to " + address.to_string() + ": socket", errno);
  int failure = ::connect(fd.get(), address.get(), address.length) == 0 ? 0 : errno;
  if (failure == EINPROGRESS) {
    TENDON_TRY(watch, Watch::make(context_, fd.get(), EPOLLOUT));
    // On this host the answer is there at once, also for a deadline of zero.
    pollfd answered{.fd = fd.get(), .events = POLLOUT, .revents = 0};
    if (!watch.wait(deadline) && ::poll(&answered, 1, 0) != 1)
      return timed_out(address.to_string(), "waiting for the first answer");
    TENDON_CHECK(context_.usable(kWhere));
    socklen_t size = sizeof failure;
    getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
  }
  if (failure == EAGAIN) {  // a unix listener whose backlog is full
    return Error{ErrorCode::server_busy, kWhere,
                 "connecting to " + address_text_ + ": the listener's backlog is full"};
  }
  if (failure == 0) return fd;
  Error error = system_error(kWhere, "connecting to " + address.to_string(), failure);
  // Nobody listens there yet: the socket may be made in a moment.
  if (failure == ENOENT && address.family() == AF_UNIX) error.code = ErrorCode::unreachable;
  return error;
}

// A name may stand for several addresses, and one that is silent leaves time to those behind it.
Result<OwnedFd> Connector::open_any(std::span<const SocketAddress> addresses) {
  std::optional<Error> failed;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto left = static_cast<std::int64_t>(addresses.size() - i);
    const bool has_all = left == 1 || deadline_.is_never() || deadline_.is_poll();
    auto fd =
        open_socket(addresses[i], has_all ? deadline_ : Deadline(deadline_.remaining() / left));
    if (fd) {
      reached_ = addresses[i];
      return fd;
    }
    if (failed)
      failed->detail += "; " + fd.error().detail;
    else
      failed = std::move(fd).error();
  }
  return *failed;
}

Result<std::unique_ptr<ByteStream>> Connector::open_stream(std::span<const SocketAddress> addresses,
                                                           Lane lane) {
  if (carrier_ != nullptr) {
    TENDON_TRY(stream, carrier_->open(lane, deadline_));
    return dial_.over(std::move(stream), lane, {});
  }
  TENDON_TRY(fd, open_any(addresses));
  return dial_.over(std::make_unique<SocketStream>(std::move(fd)), lane, host_dialled());
}

std::string Connector::host_dialled() const {
  const auto address = Address::parse(address_text_);
  return address ? address->host() : std::string();
}

// Until the machine has a message or an error, or this side has said its last frame.
Result<HelloMessage> Connector::exchange(Talk& talk, HandshakeStep step) {
  for (;;) {
    if (step.next == Next::failed) return explain(*std::move(step.error));
    if (step.message) return *std::move(step.message);
    if (step.next == Next::done) return HelloMessage{};
    step = talk.stream.advance();
    if (step.next != Next::read) continue;
    if (!talk.watch.wait(deadline_))
      return timed_out(address_text_, "waiting for the peer's handshake");
    TENDON_CHECK(context_.usable(kWhere));
  }
}

Result<void> Connector::check_user(const ByteStream& stream) const {
  const auto user = stream.peer().user;
  if (!user || *user == user_id()) return {};
  return explain({ErrorCode::permission_denied, kWhere,
                  "the listener belongs to uid " + std::to_string(*user) +
                      ", this process to uid " + std::to_string(user_id()) +
                      "; unix sockets serve one user"});
}

// A listener without a place for a further connection closes it without a word.
Result<Connector::Talk> Connector::dial_once(std::span<const SocketAddress> addresses,
                                             const HelloMessage& first) {
  const auto no_place = [this] {
    return explain({ErrorCode::server_busy, kWhere,
                    "the listener closed the connection before its first byte: it has no place "
                    "for a further one"});
  };
  const auto is_closed = [](const Error& error) { return error.code == ErrorCode::peer_lost; };
  heard_ = Redial::Heard::nothing;
  auto opened = open_stream(addresses, first.kind == HelloKind::lane ? Lane::bulk : Lane::control);
  if (!opened) return is_closed(opened.error()) ? no_place() : std::move(opened).error();
  HandshakeStream stream(*std::move(opened), Handshake::connector());
  TENDON_CHECK(check_user(*stream.stream()));
  TENDON_TRY(watch, Watch::make(context_, stream.stream()->fd(), kTalking));
  Talk talk{std::move(stream), std::move(watch), {}};
  auto answer = exchange(talk, talk.stream.reply(first));
  if (talk.stream.has_heard()) heard_ = Redial::Heard::something;
  if (!answer) {
    const bool is_unheard = is_closed(answer.error()) && heard_ == Redial::Heard::nothing;
    return is_unheard ? no_place() : std::move(answer).error();
  }
  talk.peer = *std::move(answer);
  return talk;
}

Result<std::vector<SocketAddress>> Connector::find_addresses() const {
  if (carrier_ != nullptr) return std::vector<SocketAddress>();
  TENDON_TRY(address, Address::parse(address_text_));
  return resolve(address, deadline_, ResolveFor::connect);
}

// Looks the name up for each try: a service that starts later may have another address.
Result<Connector::Talk> Connector::dial_listener() {
  return dial(absent_, [this]() -> Result<Talk> {
    auto addresses = find_addresses();
    if (!addresses) return explain(std::move(addresses).error());
    return dial_once(*addresses, context_.hello(dial_.profile()));
  });
}

Result<Connector::Talk> Connector::dial_lane(const HelloMessage& message) {
  return dial(Absent::fail, [&]() -> Result<Talk> {
    auto dialled = dial_once({&reached_, 1}, message);
    // The session is known there as long as its link lives.
    if (!dialled && dialled.error().code == ErrorCode::authentication_failed)
      return explain({ErrorCode::server_busy, kWhere,
                      "the link ended there while its lanes were opened: connect again"});
    return dialled;
  });
}

Result<Connector::Talk> Connector::dial(Absent absent, const std::function<Result<Talk>()>& once) {
  TENDON_TRY(redial, Redial::make(context_, address_text_, absent, deadline_));
  for (;;) {
    auto dialled = once();
    if (dialled) return dialled;
    TENDON_TRY(pause, redial.after(std::move(dialled).error(), heard_));
    context_.wait(nullptr, pause, [this] { return context_.unusable() || stop_.stop_requested(); });
    TENDON_CHECK(context_.usable(kWhere));
    if (stop_.stop_requested())
      return explain({ErrorCode::cancelled, kWhere, "its caller stopped the dialling"});
  }
}

Result<Connected> Connector::run() {
  TENDON_CHECK(context_.usable(kWhere));
  TENDON_CHECK(dial_.check(kWhere));
  TENDON_TRY(dialled, dial_listener());
  Talk& talk = talk_.emplace(std::move(dialled));
  const HelloMessage& peer = talk.peer;
  if (is_none(peer.ticket))
    return explain({ErrorCode::protocol_violation, kWhere, "the peer's hello carries no ticket"});
  if (expected_ && peer.context_id != *expected_) {
    return Error{ErrorCode::unreachable, kWhere,
                 "at " + address_text_ + " there is " + identity_of(peer).to_string() +
                     ", the context " + peer.context_id.to_string()};
  }
  if (const auto* session = talk.stream.stream()->session()) {
    proofs_.identity = session->identity;
    proofs_.credential = session->credential;
  }
  const std::string local = local_host(talk.stream.stream()->fd());

  // With one key for all, somebody on the path may lead a call back to a listener of the caller.
  const bool is_led_here = is_unix() || carrier_ != nullptr || reached_.is_loopback() ||
                           reached_.to_string().starts_with(local + ":");
  if (dial_.profile() == Profile::secure && peer.context_id == context_.id() && !is_led_here)
    return explain({ErrorCode::protocol_violation, kWhere,
                    "this very Context answered: somebody between leads the connection back"});

  // One link per pair: the first of several connects makes it, the others wait for it and use it.
  DialPlace place(context_, context_.links().connecting(), peer.context_id);
  std::shared_ptr<Link> link;
  const auto settled = [&] {
    if (context_.unusable()) return true;
    link = context_.links().usable(peer.context_id, dial_.profile(),
                                   carrier_ == nullptr ? ReachBy::address : ReachBy::any, proofs_);
    return link != nullptr || place.take();
  };
  if (!context_.wait(nullptr, deadline_, settled))
    return timed_out(address_text_, "another call was making the link");
  TENDON_CHECK(context_.usable(kWhere));
  if (place.taken()) {
    TENDON_TRY(made, make_link());
    return Connected{std::move(made), peer.ticket, local};
  }
  HelloMessage path;
  path.kind = HelloKind::path;
  path.path = link->path().kind;
  path.reuse = Reuse::reuse;
  TENDON_CHECK(exchange(talk, talk.stream.reply(path)));
  return Connected{std::move(link), peer.ticket, local};
}

// What either side insists on; `none` when neither does.
Result<PathKind> Connector::agree_on_path(const HelloMessage& peer) const {
  const PathKind ours = context_.hello(dial_.profile()).path;
  if (ours == PathKind::none || peer.path == PathKind::none || ours == peer.path)
    return ours == PathKind::none ? peer.path : ours;
  return explain({ErrorCode::not_supported, kWhere,
                  "this side takes " + std::string(to_string(ours)) + " only, the peer " +
                      std::string(to_string(peer.path)) +
                      " only (ContextOptions::transport, "
                      "TENDON_TRANSPORT)"});
}

// The first maker that can. Why those before it could not stands in the path.
Result<std::shared_ptr<Link>> Connector::make_link() {
  TENDON_TRY(wanted, agree_on_path(talk_->peer));
  wanted_ = wanted;
  // check_user() has seen whose the other end of a unix socket is.
  if (is_unix()) proofs_.host = Proofs::Host::same_user;
  for (const LinkMaker& maker : kLinkMakers) {
    TENDON_TRY(why_not, (this->*maker.why_not)());
    if (why_not.empty()) return (this->*maker.connect)();
    why_not_ = std::move(why_not);
  }
  (void)talk_->stream.reject({ErrorCode::permission_denied, kWhere, why_not_});
  return explain(
      {ErrorCode::not_supported, kWhere,
       "transport '" + std::string(to_string(wanted_)) + "' was asked for, but: " + why_not_});
}

Result<HelloMessage> Connector::say_path(const Path& path) {
  HelloMessage choice;
  choice.kind = HelloKind::path;
  choice.path = path.kind;
  choice.reason = path.reason;
  return exchange(*talk_, talk_->stream.reply(choice));
}

// Shared memory

// Another path was asked for: the proof is what the profile needs.
Result<std::string> Connector::why_no_memory() {
  const HelloMessage& peer = talk_->peer;
  is_elsewhere_ = true;
  if (stream_kind() == PathKind::routed) return talk_->stream.stream()->peer().why;
  if (is_unix() && !may_take(PathKind::shm)) return std::string("asked for; over a unix socket");
  const Nonce128 here = context_.hello(dial_.profile()).boot_id;
  if (is_none(here) || is_none(peer.boot_id)) {
    is_elsewhere_ = identity_of(peer).host != host_name();
    return std::string(is_none(here) ? "this process" : "the peer") +
           " cannot read /proc/sys/kernel/random/boot_id, by which a host is known: mount /proc";
  }
  if (peer.boot_id != here) return std::string("another host");
  if (peer.uid != user_id()) return "another user (uid " + std::to_string(peer.uid) + ")";
  is_elsewhere_ = false;
  if (is_none(peer.token)) {
    return "the peer offers no rendezvous" +
           (peer.reason.empty() ? "" : ", because " + peer.reason);
  }
  auto met = meet();
  if (met) {
    proofs_.host = Proofs::Host::same_user;
    if (!may_take(PathKind::shm)) return std::string("asked for; same host");
    met_.emplace(*std::move(met));
    return std::string();
  }
  if (must_be_proved() && has_peer_gone()) {
    return explain(
        {ErrorCode::peer_lost, kWhere,
         identity_of(peer).to_string() +
             " went away before it was proved to be on this host: " + met.error().detail});
  }
  const ErrorCode code = met.error().code;
  if (says_nothing_about_the_host(code) ||
      (must_be_proved() && code == ErrorCode::resource_exhausted))
    return explain(std::move(met).error());
  return "the proof of the same host failed: " + met.error().detail;
}

// One that died took the rendezvous and this connection with it, one shortly after the other.
bool Connector::has_peer_gone() const {
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(
      std::min<std::chrono::nanoseconds>(deadline_.remaining(), kEndShowsWithin));
  pollfd stream{talk_->stream.stream()->fd(), POLLRDHUP, 0};
  return poll(&stream, 1, static_cast<int>(wait.count())) > 0;
}

// Meets the peer at the rendezvous named by its token, and maps each other's memory there. The
// proof is for our connection alone: a process that relays our bytes to a listener of ours gets
// nothing.
Result<Connector::Met> Connector::meet() {
  TENDON_TRY(path, find_rendezvous(talk_->peer.token));
  TENDON_TRY(address, unix_socket_address(path));
  TENDON_TRY(fd, open_socket(address, deadline_));
  auto meeting = std::make_unique<RendezvousSocket>(std::move(fd));
  RendezvousSocket& socket = *meeting;
  if (socket.peer().user != user_id()) {
    return Error{ErrorCode::permission_denied, kWhere,
                 "the rendezvous belongs to uid " + std::to_string(socket.peer().user.value_or(0))};
  }
  TENDON_TRY(watch, Watch::make(context_, socket.fd(), kTalking));
  Talk talk{HandshakeStream(std::move(meeting), Handshake::connector()), std::move(watch), {}};
  TENDON_TRY(again, exchange(talk, talk.stream.reply(context_.hello(dial_.profile()))));
  if (again.context_id != talk_->peer.context_id) {
    return Error{ErrorCode::protocol_violation, kWhere,
                 "another context answered at the rendezvous"};
  }
  TENDON_TRY(proof, SameHostProof::make());
  const secure::TlsSession* const session = talk_->stream.stream()->session();
  const HandshakeStep said =
      proof.send_attach(talk.stream, socket, context_.loop().doorbell_fd(),
                        connection_text(talk_->stream.stream()->fd(), ConnectionEnd::connector) +
                            (session == nullptr ? std::string() : mark_of(*session)));
  TENDON_TRY(attach, exchange(talk, said));
  TENDON_CHECK(proof.receive_attach(socket, attach));
  return Met{std::move(talk), &socket, std::move(proof)};
}

Result<std::shared_ptr<Link>> Connector::link_by_memory() {
  HelloMessage ready;
  ready.kind = HelloKind::ready;
  TENDON_CHECK(exchange(met_->talk, met_->talk.stream.reply(ready)));
  met_->talk.watch.stop();
  auto renewals = dial_.renewals_of(talk_->stream.stream()->session(), 0);
  TENDON_TRY(link, met_->proof.make_link(met_->socket->release(), talk_->peer, proofs_, context_,
                                         std::move(renewals)));
  // The link exists on both sides before the peer may hear of a pipe on it.
  TENDON_CHECK(context_.add_link(link, LinkRole::connector, proofs_, Features(talk_->peer.features),
                                 {.boot_id = talk_->peer.boot_id}));
  TENDON_CHECK(say_path(link->path()));
  return link;
}

// Streams

Result<std::string> Connector::why_no_cable() {
  return stream_kind() == PathKind::routed ? why_no_stream() : why_not_;
}

Result<std::string> Connector::why_no_stream() {
  if (!proofs_.satisfy(dial_.profile())) {
    (void)talk_->stream.reject({ErrorCode::permission_denied, kWhere, why_not_});
    return explain(
        {ErrorCode::permission_denied, kWhere,
         "profile 'local' needs this user on this host, but " +
             identity_of(talk_->peer).to_string() + ": " + why_not_ +
             (is_elsewhere_ ? "; ask for profile 'plaintext' by name to go without protection "
                              "(Profile::plaintext, `tendon --insecure-plaintext`)"
                            : "; both processes need one runtime directory that is theirs alone "
                              "(TENDON_RUNTIME_DIR, `tendon info` prints it)")});
  }
  return may_take(PathKind::tcp) ? std::string() : why_not_;
}

Result<std::shared_ptr<Link>> Connector::link_by_stream() {
  const Path path{stream_kind(), why_not_};
  TENDON_TRY(ready, say_path(path));
  const HelloMessage& peer = talk_->peer;
  talk_->watch.stop();
  const secure::TlsSession* const session = talk_->stream.stream()->session();
  dial_.use(session);
  auto renewals = dial_.renewals_of(session, lanes_of(path.kind, context_.options(), *peer.limits));
  StreamLinkOptions options =
      stream_options(context_, peer, proofs_, path, talk_->stream.release());
  options.renewal = std::move(renewals);
  TENDON_TRY(link, make_stream_link(std::move(options)));
  TENDON_CHECK(context_.add_link(link, LinkRole::connector, proofs_, Features(peer.features),
                                 {.boot_id = peer.boot_id}));
  // The next connect would take a link that lives for a whole one.
  if (auto added = add_lanes(*link, ready.ticket); !added) {
    link->fail(added.error(), Death::not_proved);
    return std::move(added).error();
  }
  return std::shared_ptr<Link>(std::move(link));
}

// Bulk lanes: each is a connection of its own, admitted by a token that is good once.
Result<void> Connector::add_lanes(StreamLink& link, Nonce128 lane_ticket) {
  const std::uint32_t lanes = lanes_of(link.path().kind, context_.options(), *talk_->peer.limits);
  for (std::uint32_t index = 0; index < lanes; ++index) {
    HelloMessage message;
    message.kind = HelloKind::lane;
    message.context_id = context_.id();
    message.ticket = lane_ticket;
    message.lane_index = index;
    TENDON_TRY(lane, dial_lane(message));
    lane_ticket = lane.peer.ticket;
    lane.watch.stop();
    TENDON_CHECK(link.add_lane(lane.stream.release()));
  }
  return {};
}

Result<Connected> connect(ContextCore& context, std::string_view address,
                          const ConnectOptions& options, Deadline deadline) {
  return Connector(context, address, options, deadline).run();
}

Result<Connected> connect(ContextCore& context, std::string_view address, Profile profile,
                          Deadline deadline) {
  return connect(context, address, {.security = {profile}, .absent = Absent::fail}, deadline);
}

Result<Connected> connect(ContextCore& context, const ContextId& expected, std::string_view address,
                          Security security, Deadline deadline) {
  Connector connector(context, address, {.security = std::move(security), .absent = Absent::fail},
                      deadline);
  connector.expect(expected);
  return connector.run();
}

Result<Connected> connect(ContextCore& context, const Carrier& carrier, Security security,
                          Deadline deadline) {
  return Connector(context, carrier, std::move(security), deadline).run();
}

}  // namespace tendon::v0::detail
