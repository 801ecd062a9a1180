// SPDX-License-Identifier: Apache-2.0
#include "runtime/connect.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <tendon/session/address.hpp>

#include "runtime/begun_connection.hpp"
#include "runtime/connector.hpp"
#include "runtime/dial_errors.hpp"
#include "runtime/dial_place.hpp"
#include "runtime/lane_dials.hpp"
#include "runtime/link_makers.hpp"
#include "runtime/redial.hpp"
#include "runtime/stream_options.hpp"
#include "session/machine.hpp"
#include "session/resolve.hpp"
#include "transport/stream/socket_stream.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = kConnect;

// When a process dies, its other connections end within this time of the first.
constexpr std::chrono::milliseconds kEndShowsWithin{100};

// An unfinished proof does not show that the peer is elsewhere.
bool says_nothing_about_the_host(ErrorCode code) {
  return code == ErrorCode::timeout || code == ErrorCode::too_many_open_files ||
         code == ErrorCode::context_closed || code == ErrorCode::forked;
}

}  // namespace

Result<OwnedFd> Connector::open_socket(const SocketAddress& address, Deadline deadline) {
  TENDON_TRY(fd, begin_connection(address, kWhere));
  // On this host the answer arrives at once, also for a deadline of zero.
  pollfd answered{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&answered, 1, 0) != 1) {
    TENDON_TRY(watch, Watch::make(context_, fd.get(), EPOLLOUT));
    if (!watch.wait(deadline) && ::poll(&answered, 1, 0) != 1)
      return dial_timed_out(address.to_string(), "waiting for the first answer");
    TENDON_CHECK(context_.usable(kWhere));
  }
  const int cause = connection_cause(fd.get());
  if (cause != 0) return connection_failed(address, kWhere, cause);
  return fd;
}

// A name may stand for several addresses, so a silent one leaves time for those after it.
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
    return dial_.over(std::move(stream), lane, {}, living_key());
  }
  TENDON_TRY(fd, open_any(addresses));
  return dial_.over(std::make_unique<SocketStream>(std::move(fd)), lane, host_dialled(),
                    living_key());
}

Proofs Connector::living_key() const {
  if (dial_.profile() != Profile::secure) return {};
  return context_.links().key_of_dialled(reached_.to_string(), expected_);
}

bool Connector::proves_another_key(const Talk& talk) const {
  const Proofs living = living_key();
  const auto* const session = talk.stream.stream()->session();
  return session != nullptr && living.is_by_key() && session->credential != living.credential;
}

void Connector::note_dialled(const Link& link) const {
  if (dial_.profile() == Profile::secure && carrier_ == nullptr)
    context_.links().note_dialled(link, reached_.to_string());
}

std::string Connector::host_dialled() const {
  const auto address = Address::parse(address_text_);
  return address ? address->host() : std::string();
}

// Runs until the machine has a message or an error, or this side has sent its last frame.
Result<HelloMessage> Connector::exchange(Talk& talk, HandshakeStep step) {
  for (;;) {
    if (step.next == Next::failed) return explain(*std::move(step.error));
    if (step.message) return *std::move(step.message);
    if (step.next == Next::done) return HelloMessage{};
    step = talk.stream.advance();
    if (step.next != Next::read) continue;
    if (!talk.watch.wait(deadline_)) return dial_timed_out(address_text_, talk.stream);
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

Result<Talk> Connector::dial_once(std::span<const SocketAddress> addresses) {
  const auto is_closed = [](const Error& error) { return error.code == ErrorCode::peer_lost; };
  heard_ = Heard::nothing;
  auto opened = open_stream(addresses, Lane::control);
  if (!opened)
    return is_closed(opened.error()) ? no_place_at(address_text_) : std::move(opened).error();
  TENDON_CHECK(check_user(**opened));
  TENDON_TRY(talk, Talk::over(context_, *std::move(opened)));
  auto answer = exchange(talk, talk.stream.reply(context_.hello(dial_.profile())));
  heard_ = talk.stream.heard();
  if (!answer) {
    const bool is_unheard = is_closed(answer.error()) && heard_ == Heard::nothing;
    if (is_unheard) return no_place_at(address_text_);
    Error error = std::move(answer).error();
    // A refusal has a code and a text, and not the place that decides the remedy.
    if (error.code == ErrorCode::protocol_violation && proves_another_key(talk))
      error.where = "context.identity";
    return error;
  }
  talk.peer = *std::move(answer);
  return talk;
}

Result<std::vector<SocketAddress>> Connector::find_addresses() const {
  if (carrier_ != nullptr) return std::vector<SocketAddress>();
  TENDON_TRY(address, Address::parse(address_text_));
  return resolve(address, deadline_, ResolveFor::connect);
}

// Looks the name up for each try, because a service that starts later may have another address.
Result<Talk> Connector::dial_listener() {
  const auto once = [this]() -> Result<Talk> {
    auto addresses = find_addresses();
    if (!addresses) return explain(std::move(addresses).error());
    return dial_once(*addresses);
  };
  TENDON_TRY(redial, Redial::make(context_, address_text_, absent_, deadline_));
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
  if (dial_.profile() == Profile::secure && peer.context_id == context_.id())
    TENDON_CHECK(check_own_listener(peer.ticket, local));
  if (auto may = context_.links().may_be(peer.context_id, LinkRole::connector, proofs_); !may)
    return explain(std::move(may).error());

  // There is one link per pair: the first of several connects makes it, the others wait and use it.
  DialPlace place(context_, context_.links().connecting(), peer.context_id);
  std::shared_ptr<Link> link;
  const auto settled = [&] {
    if (context_.unusable()) return true;
    link = context_.links().usable(peer.context_id, dial_.profile(),
                                   carrier_ == nullptr ? ReachBy::address : ReachBy::any, proofs_);
    return link != nullptr || place.take();
  };
  if (!context_.wait(nullptr, deadline_, settled))
    return dial_timed_out(address_text_, "another call was making the link");
  TENDON_CHECK(context_.usable(kWhere));
  if (place.taken()) {
    TENDON_TRY(made, make_link());
    note_dialled(*made);
    return Connected{std::move(made), peer.ticket, local};
  }
  HelloMessage path;
  path.kind = HelloKind::path;
  path.path = link->path().kind;
  path.reuse = Reuse::reuse;
  TENDON_CHECK(exchange(talk, talk.stream.reply(path)));
  note_dialled(*link);
  return Connected{std::move(link), peer.ticket, local};
}

// With one key for all, an attacker on the path may redirect a call to a listener of the caller.
// The ticket shows which listener has answered, and the address which one was dialled.
Result<void> Connector::check_own_listener(const Nonce128& ticket, std::string_view local) const {
  if (is_unix() || carrier_ != nullptr) return {};
  const std::string reached = reached_.to_string();
  const std::size_t host_end = reached.rfind(':');
  const bool is_this_host = reached_.is_loopback() || reached.substr(0, host_end) == local;
  const auto answered = context_.tickets().find(ticket, context_.id());
  if (is_this_host && answered && answered->address.ends_with(reached.substr(host_end))) return {};
  return explain({ErrorCode::protocol_violation, kWhere,
                  "this very Context answered, and no listener of it was dialled: somebody between "
                  "leads the connection back"});
}

// The path that either side insists on; `none` when neither does.
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

// Uses the first maker that can link. The path records why the earlier ones could not.
Result<std::shared_ptr<Link>> Connector::make_link() {
  TENDON_TRY(wanted, agree_on_path(talk_->peer));
  wanted_ = wanted;
  // check_user() has checked the user at the other end of a unix socket.
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

// If another path was asked for, memory serves only for the proof that the profile needs.
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
  // Between the ends of one TLS session, only a process in between can break the protocol.
  const bool is_attacked =
      code == ErrorCode::protocol_violation && talk_->stream.stream()->session() != nullptr;
  if (is_attacked || says_nothing_about_the_host(code) ||
      (must_be_proved() && code == ErrorCode::resource_exhausted))
    return explain(std::move(met).error());
  return "the proof of the same host failed: " + met.error().detail;
}

// When the peer dies, the rendezvous and this connection end shortly after one another.
bool Connector::has_peer_gone() const {
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(
      std::min<std::chrono::nanoseconds>(deadline_.remaining(), kEndShowsWithin));
  pollfd stream{talk_->stream.stream()->fd(), POLLRDHUP, 0};
  return poll(&stream, 1, static_cast<int>(wait.count())) > 0;
}

// Meets the peer at the rendezvous named by its token, and maps each other's memory there. The
// proof covers our connection alone: a process that relays our bytes to a listener of ours gains
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
  TENDON_TRY(talk, Talk::over(context_, std::move(meeting)));
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
  // The link exists on both sides before the peer can receive a pipe on it.
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
                              "(Profile::plaintext, --insecure-plaintext of `tendon send`)"
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
  // On failure the link ends, because the next connect would take it for a complete one.
  if (auto added = add_lanes(*link, ready.ticket); !added) {
    link->fail(added.error(), Death::not_proved);
    return std::move(added).error();
  }
  return std::shared_ptr<Link>(std::move(link));
}

Result<std::unique_ptr<ByteStream>> Connector::open_lane() {
  if (carrier_ != nullptr) return open_stream({}, Lane::bulk);
  TENDON_TRY(fd, begin_connection(reached_, kWhere));
  TENDON_TRY(stream, dial_.over(std::make_unique<SocketStream>(std::move(fd)), Lane::bulk));
  TENDON_CHECK(check_user(*stream));
  return stream;
}

// Adds the bulk lanes. Each is a separate connection, admitted by a ticket that is good once for
// each.
Result<void> Connector::add_lanes(StreamLink& link, const Nonce128& lane_ticket) {
  const HelloMessage& peer = talk_->peer;
  const Features features =
      Features(peer.features).both(Features::of_minor(context_.options().protocol_minor));
  LaneDials dials(context_, {.open = [this] { return open_lane(); },
                             .address = address_text_,
                             .ticket = lane_ticket,
                             .count = lanes_of(link.path().kind, context_.options(), *peer.limits),
                             .pace = features.has(Feature::lanes_at_once) ? LanePace::all_at_once
                                                                          : LanePace::one_by_one,
                             .deadline = deadline_,
                             .stop = stop_,
                             .why_over = [&link]() -> std::optional<Error> {
                               if (!link.ended()) return std::nullopt;
                               return link.end_error();
                             }});
  TENDON_TRY(lanes, dials.run());
  for (auto& lane : lanes) TENDON_CHECK(link.add_lane(std::move(lane)));
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
