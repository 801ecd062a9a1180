// SPDX-License-Identifier: Apache-2.0
#include "runtime/admission.hpp"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <tendon/session/limits.hpp>

#include "core/failpoint.hpp"
#include "runtime/link_makers.hpp"
#include "runtime/renewals.hpp"
#include "runtime/stream_options.hpp"
#include "session/machine.hpp"
#include "session/resolve.hpp"
#include "session/socket_names.hpp"
#include "transport/stream/stream_link.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "context.admission";

HelloMessage ready_frame(const Nonce128& ticket = {}) {
  HelloMessage ready;
  ready.kind = HelloKind::ready;
  ready.ticket = ticket;
  return ready;
}

// Empty options for a connection without TLS.
LinkRenewalOptions renewals_after(const AdmittedConnection& connection, const Security& security,
                                  std::uint32_t lanes) {
  if (connection.proved().identity.empty()) return {};
  return renewals_of(security.credentials, secure::TlsHandshake::Role::server,
                     connection.proved().identity, connection.proved().credential, connection.how(),
                     lanes);
}

}  // namespace

Admission::Admission(std::shared_ptr<Acceptor> acceptor, Door::Number number,
                     std::unique_ptr<ByteStream> stream, const std::optional<Source>& source)
    : acceptor_(std::move(acceptor)),
      number_(number),
      visitor_(nullptr),
      stream_(std::move(stream), Handshake::acceptor()),
      source_(source),
      stranger_(stranger_at(*stream_.stream())),
      connection_(connection_text(stream_.stream()->fd(), ConnectionEnd::acceptor)) {}

Admission::Admission(std::shared_ptr<Acceptor> acceptor, Door::Number number,
                     std::unique_ptr<RendezvousSocket> visitor, std::shared_ptr<Admission> parent)
    : acceptor_(std::move(acceptor)),
      number_(number),
      visitor_(visitor.get()),
      stream_(std::move(visitor), Handshake::acceptor()),
      parent_(std::move(parent)),
      stranger_(stranger_at(*visitor_)) {}

Admission::~Admission() { close_rendezvous(); }

Result<void> Admission::start() {
  const Lock lock(mutex_);
  if (finished_) return {};  // its place was already released
  timer_ = context().add_timed(parent_ == nullptr ? acceptor_->due(number_) : kHandshakeTimeout,
                               weak_from_this());
  return context().loop().watch_in_turns(stream_.stream()->fd(), EPOLLIN | EPOLLRDHUP,
                                         weak_from_this());
}

void Admission::on_time() {
  const Lock lock(mutex_);
  if (finished_) return;
  if (rendezvous_) context().loop().change(rendezvous_.get(), EPOLLIN);
  const Deadline due = acceptor_->due(number_);
  if (parent_ == nullptr && due.time_point() == Door::Time::min())
    return end_late("its place before the door went to another connection");
  if (!due.has_passed()) {
    timer_ = context().add_timed(due, weak_from_this());
    return;
  }
  // Bytes that have arrived count, because this Context may have made no progress for a while. Many
  // connections may be late at once, so each is read in its turn.
  is_late_ = true;
  context().loop().call_in_turn(stream_.stream()->fd());
}

void Admission::end_if_late() {
  if (!std::exchange(is_late_, false) || finished_) return;
  const Deadline due = acceptor_->due(number_);
  if (due.has_passed()) return end_late("it did not go on with its handshake in time");
  timer_ = context().add_timed(due, weak_from_this());
}

void Admission::end_late(std::string_view why) {
  note_refused(why);
  (void)stream_.handshake().on_timeout();
  finish();
}

void Admission::cancel() {
  const Lock lock(mutex_);
  if (!finished_) finish();
}

// Leaves the acceptor's list; the connection closes unless it was released to a link.
void Admission::finish() {
  finished_ = true;
  if (const auto stream = stream_.release()) context().loop().forget(stream->fd());
  close_rendezvous();
  context().remove_timed(timer_);
  acceptor_->finished(number_);
}

void Admission::on_ready(int fd, std::uint32_t) {
  const auto self = shared_from_this();
  const Lock lock(mutex_);
  if (finished_) return;
  if (rendezvous_ && fd == rendezvous_.get()) return on_rendezvous();
  advance();
  end_if_late();
}

void Admission::advance() {
  while (!finished_) {
    HandshakeStep step = stream_.advance();
    if (step.next == Next::read) return wait_for_more();
    if (step.next == Next::failed) {
      // A connector that found a better path, or none, just closes the connection, like a port
      // probe.
      const auto why = stream_.stream()->why_lost();
      const bool is_refused = why && why->code != ErrorCode::peer_lost;
      if (step.send.empty() && !is_refused)
        context().log(LogLevel::info, kWhere, stranger_.address + ": " + step.error->detail);
      else
        note_refused(step.error->detail);
      return finish();
    }
    if (!step.message) {
      on_said_last();
      return finish();
    }
    const bool has_place = acceptor_->heard(parent_ == nullptr ? number_ : parent_->number_);
    if (parent_ == nullptr && !has_place) {
      note_refused(kNoPlace);
      return finish();
    }
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

// After its ClientHello, a connection leaves the silent ones and takes one of the answered places.
void Admission::wait_for_more() {
  if (stream_.stream()->has_answered() && connection_.note_begun() &&
      !acceptor_->answered(number_)) {
    note_refused(kNoPlace);
    return finish();
  }
  listen();
}

void Admission::listen() {
  const bool wants_room = stream_.has_unsent();
  if (std::exchange(wants_room_, wants_room) == wants_room) return;
  context().loop().change(stream_.stream()->fd(), wants_room ? EPOLLOUT : EPOLLIN | EPOLLRDHUP);
}

bool Admission::say_last(const HelloMessage& frame) {
  const HandshakeStep step = stream_.reply(frame);
  if (step.next == Next::done) on_said_last();
  return step.next == Next::read;
}

void Admission::on_said_last() {
  const auto link = std::exchange(lane_of_, nullptr);
  if (link == nullptr) return;
  context().loop().forget(stream_.stream()->fd());
  if (const auto added = link->add_lane(stream_.release()); !added)
    note_refused(added.error().detail);
  else
    context().links().renew(*link);
}

bool Admission::refuse(Error error) {
  note_refused(error.detail);
  (void)stream_.reject(std::move(error));
  return false;
}

void Admission::note_refused(std::string_view why) const {
  Stranger named = stranger_;
  if (peer_ && peer_->kind == HelloKind::hello)
    named.address += ", which says that it is " + identity_of(*peer_).to_string();
  refuse_stranger(&context(), kWhere, named, why);
}

bool Admission::on_hello(const HelloMessage& hello) {
  peer_ = hello;
  if (const auto* session = stream_.stream()->session()) {
    if (session->proof == secure::PeerProof::session)
      return refuse({ErrorCode::protocol_violation, kWhere, "a lane began as a link"});
    connection_.note_session(session);
  }
  if (auto may =
          context().links().may_be(hello.context_id, LinkRole::acceptor, connection_.proved());
      !may)
    return refuse(std::move(may).error());
  if (parent_ == nullptr) {
    // Pipes opened just before may be in rings that were not read yet; they count.
    context().poll_every_link();
    const auto handler = acceptor_->handler_.lock();
    if (handler == nullptr)
      return refuse({ErrorCode::unreachable, kWhere, "the listener was closed"});
    if (auto may = handler->may_open(); !may) return refuse(std::move(may).error());
    if (auto room = context().make_room(identity_of(hello), origin()); !room)
      return refuse(std::move(room).error());
  }
  HelloMessage answer = context().hello(acceptor_->security_.profile);
  if (parent_ == nullptr) {
    auto ticket = context().tickets().issue(acceptor_->tickets_as_, hello.context_id);
    if (!ticket) return refuse(std::move(ticket).error());
    answer.ticket = *ticket;
    for (const LinkMaker& maker : kLinkMakers) {
      if (maker.offer == nullptr) continue;
      auto offered = (this->*maker.offer)(std::move(answer));
      if (!offered) return refuse(std::move(offered).error());
      answer = *std::move(offered);
    }
  }
  return stream_.reply(answer).next != Next::failed;
}

bool Admission::may_be_here() const {
  const Nonce128 here = context().hello(acceptor_->security_.profile).boot_id;
  return !is_none(here) && peer_->boot_id == here && peer_->uid == user_id();
}

// Offers a rendezvous. Without one the connector takes another path, or says why it may not.
Result<HelloMessage> Admission::offer_memory(HelloMessage answer) {
  if (stream_.stream()->peer().kind == PathKind::routed) return answer;
  // The kernel has already shown that a peer at a unix socket is this user.
  const bool is_unix = stream_.stream()->peer().user.has_value();
  if (is_unix && (peer_->path == PathKind::tcp || answer.path == PathKind::tcp)) return answer;
  if (!may_be_here()) return answer;
  auto token = open_rendezvous();
  if (token) {
    answer.token = *token;
  } else if (token.error().code == ErrorCode::too_many_open_files) {
    return std::move(token).error();
  } else {
    answer.reason = std::move(token).error().detail;
    acceptor_->say_at_pace(LogLevel::warn, kWhere, answer.reason);
  }
  return answer;
}

Result<Nonce128> Admission::open_rendezvous() {
  TENDON_TRY(directory, runtime_directory());
  TENDON_TRY(token, random_nonce());
  const std::string path = rendezvous_path(directory, token);
  TENDON_TRY(listening, listen_at(path, 1));
  rendezvous_path_ = path;
  TENDON_CHECK(context().loop().watch(listening.fd.get(), EPOLLIN, weak_from_this()));
  rendezvous_ = std::move(listening.fd);
  return token;
}

void Admission::close_rendezvous() {
  if (rendezvous_) {
    context().loop().forget(rendezvous_.get());
    rendezvous_.reset();
  }
  if (!rendezvous_path_.empty()) unlink(rendezvous_path_.c_str());
  rendezvous_path_.clear();
}

void Admission::on_rendezvous() {
  OwnedFd fd(accept4(rendezvous_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd && (errno == EMFILE || errno == ENFILE)) {
    // The visitor stays in the kernel's queue and epoll would report it forever: on_time() retries.
    context().loop().change(rendezvous_.get(), 0);
    context().remove_timed(timer_);
    timer_ = context().add_timed(std::chrono::milliseconds(100), weak_from_this());
  }
  if (!fd) return;
  close_rendezvous();  // one visitor only; this also removes the file
  acceptor_->admit_visitor(std::move(fd), shared_from_this());
}

bool Admission::on_attach(const HelloMessage& attach) {
  if (visitor_ == nullptr) {
    return refuse({ErrorCode::protocol_violation, kWhere,
                   "descriptors travel at the rendezvous, not on this connection"});
  }
  (void)TENDON_FAILPOINT("handshake.attach");
  auto proof = SameHostProof::make();
  if (!proof) return refuse(proof.error());
  if (const auto received = proof->receive_attach(*visitor_, attach); !received)
    return refuse(received.error());
  if (parent_->peer_->context_id != peer_->context_id) {
    return refuse(
        {ErrorCode::protocol_violation, kWhere, "another context came to the rendezvous"});
  }
  if (const auto checked = parent_->connection_.check_proof(attach.connection); !checked)
    return refuse(checked.error());
  parent_->proved_ = true;
  proof_ = *std::move(proof);
  const int doorbell = context().loop().doorbell_fd();
  return proof_->send_attach(stream_, *visitor_, doorbell, {}).next != Next::failed;
}

bool Admission::on_ready_frame() {
  context().loop().forget(visitor_->fd());
  const Proofs proofs = parent_->connection_.proved_here();
  auto link = proof_->make_link(visitor_->release(), *peer_, proofs, context(),
                                renewals_after(parent_->connection_, acceptor_->security_, 0));
  if (link) {
    const auto added =
        context().add_link(*link, LinkRole::acceptor, proofs, Features(peer_->features), origin());
    if (!added) note_refused(added.error().detail);
  }
  return false;
}

bool Admission::on_path(const HelloMessage& path) {
  if (path.reuse == Reuse::reuse) {
    // The link may not have arrived here yet; then the ticket decides.
    auto may = context().links().may_reuse(peer_->context_id, acceptor_->security_.profile,
                                           connection_.proved());
    if (!may) return refuse(std::move(may).error());
    return say_last(ready_frame());
  }
  for (const LinkMaker& maker : kLinkMakers)
    if (maker.kind == path.path) return (this->*maker.accept)(path);
  return refuse({ErrorCode::not_supported, kWhere, "no link of this kind is made here"});
}

// Only confirms: the link was made at the rendezvous.
bool Admission::accept_memory(const HelloMessage&) { return say_last(ready_frame()); }

bool Admission::accept_stream(const HelloMessage& path) {
  if (const PathKind kind = stream_.stream()->peer().kind; path.path != kind) {
    return refuse({ErrorCode::protocol_violation, kWhere,
                   "the path '" + std::string(to_string(path.path)) +
                       "' was chosen on one that is '" + std::string(to_string(kind)) + "'"});
  }
  if (context().options().transport == Transport::shm)
    return refuse(
        {ErrorCode::not_supported, kWhere, "this listener's context takes shared memory only"});
  const bool is_unix = stream_.stream()->peer().user.has_value();
  const bool is_here = is_unix || proved_;
  const Proofs proofs = is_here ? connection_.proved_here() : connection_.proved();
  if (!proofs.satisfy(acceptor_->security_.profile)) {
    return refuse(
        {ErrorCode::permission_denied, kWhere,
         std::string("profile 'local' needs the same user on the same host; ") +
             (may_be_here() ? "both processes need one runtime directory for the proof "
                              "(TENDON_RUNTIME_DIR)"
                            : "the listener must be bound with Profile::plaintext for others")});
  }
  const LinkTable& links = context().links();
  if (auto may = links.may_add(identity_of(*peer_), LinkRole::acceptor, proofs, origin()); !may)
    return refuse(std::move(may).error());
  std::string reason = path.reason.empty() ? "chosen by the peer" : path.reason;
  context().loop().forget(stream_.stream()->fd());
  const secure::TlsSession* const session = stream_.stream()->session();
  StreamLinkOptions options =
      stream_options(context(), *peer_, proofs, {path.path, std::move(reason)}, stream_.release());
  const std::uint32_t lane_count = lanes_of(path.path, context().options(), *peer_->limits);
  options.lanes = lane_count;
  options.renewal = renewals_after(connection_, acceptor_->security_, lane_count);
  if (session != nullptr) options.renewal.on_agreed = acceptor_->lane_keys_.follower(*session);
  auto link = make_stream_link(std::move(options));
  if (link && session != nullptr) acceptor_->lane_keys_.add(*session, *link);
  auto lane = link ? acceptor_->lanes_.issue(*link, lane_count) : Result<Nonce128>(link.error());
  const HandshakeStep last = lane ? stream_.handshake().reply(ready_frame(*lane))
                                  : stream_.handshake().reject(lane.error());
  if (!lane) {
    note_refused(lane.error().detail);
    if (link) (*link)->say_first(last.send);
    return false;
  }
  // The link already owns the stream. Its lanes may need all the places of its address.
  acceptor_->leave_door(number_);
  (*link)->say_first(last.send);
  const auto added =
      context().add_link(*link, LinkRole::acceptor, proofs, Features(peer_->features), origin());
  if (!added) note_refused(added.error().detail);
  return false;
}

bool Admission::on_lane(const HelloMessage& lane) {
  using Verdict = LaneTickets::Verdict;
  const Error not_expected{ErrorCode::server_busy, kWhere,
                           "no link here expects a lane with this ticket: connect again"};
  std::shared_ptr<StreamLink> of;
  const auto* session = stream_.stream()->session();
  if (session != nullptr) {
    if (session->proof != secure::PeerProof::session)
      return refuse({ErrorCode::protocol_violation, kWhere, "a lane is of no session of a link"});
    of = acceptor_->lane_keys_.link_of(session->identity);
    if (of == nullptr) return refuse(not_expected);  // the link ended after the lane's handshake
  }
  const auto taken = acceptor_->lanes_.take(lane.ticket, lane.lane_index, of);
  const bool is_known =
      taken.verdict != Verdict::unknown && taken.link->peer().context == lane.context_id;
  if (!is_known && session != nullptr)
    return refuse(
        {ErrorCode::protocol_violation, kWhere, "the lane is of another session than its link"});
  // An honest peer meets this where its link has just ended, or where this listener has replaced
  // the one that made the link: a new connection may succeed.
  if (!is_known) return refuse(not_expected);
  if (taken.verdict != Verdict::joins)
    return refuse({ErrorCode::protocol_violation, kWhere,
                   "lane " + std::to_string(lane.lane_index) +
                       (taken.verdict == Verdict::twice ? " has joined its link already"
                                                        : " is none of those of its link")});
  lane_of_ = taken.link;
  // A peer that opens its lanes one by one expects a ticket for the next one.
  return say_last(ready_frame(lane.ticket));
}

}  // namespace tendon::v0::detail
