// SPDX-License-Identifier: Apache-2.0
#include "transport/link.hpp"

#include <string>
#include <utility>

#include "core/text.hpp"
#include "transport/shm/shared_memory_policy.hpp"

namespace tendon::v0::detail {

// NOLINTNEXTLINE(performance-unnecessary-value-param): what overrides it keeps the segment
Result<void> MessageSink::on_segment(std::uint32_t id, std::shared_ptr<Segment>) {
  return Error{ErrorCode::protocol_violation, "link.segment",
               "segment " + std::to_string(id) + " was published on a pipe that takes none"};
}

void show_and_ring(std::span<Link* const> links) {
  for (Link* const link : links) link->show();
  full_barrier();
  for (Link* const link : links) link->ring_behind_barrier();
}

Link::Link(const LinkTraits& traits, Path path, PeerIdentity peer, std::uint64_t cap_bytes,
           std::uint64_t peer_cap_bytes)
    : budget_(cap_bytes, [] {}),
      traits_(traits),
      path_(std::move(path)),
      peer_(std::move(peer)),
      peer_name_(peer_.to_string()),
      cap_bytes_(cap_bytes),
      peer_cap_bytes_(peer_cap_bytes) {}

void Link::agree(Features features, LinkRole role) {
  const Lock receiving(receive_mutex_);
  features_ = features;
  role_ = role;
}

void Link::post_error(std::uint32_t pipe, ErrorCode code, std::string_view reason) {
  const std::string text = escaped(reason, kMaxReasonBytes);
  post(error_descriptor(pipe, code, text), as_bytes(text));
}

bool Link::peer_may_open(std::uint32_t pipe) const noexcept {
  const bool peer_connected = role_ == LinkRole::acceptor;
  if (!features_.has(Feature::purposes)) return peer_connected;
  return (pipe % 2 == 1) == peer_connected;
}

std::uint32_t Link::next_pipe_id() noexcept {
  const std::uint32_t number = ++opened_count_;
  if (!features_.has(Feature::purposes)) return number;
  return role_ == LinkRole::connector ? 2 * number - 1 : 2 * number;
}

void Link::attach(std::uint32_t pipe, std::shared_ptr<MessageSink> sink) {
  sinks_.attach(pipe, std::move(sink));
}

void Link::detach(std::uint32_t pipe) {
  drop_claims(pipe);
  sinks_.detach(pipe);
}

// Here, not where it is called: what destroys a message is long.
void Link::dispatch(Incoming&& incoming) { sinks_.dispatch(std::move(incoming)); }

void Link::fail(const Error& error, Death death) {
  const Lock receiving(receive_mutex_);
  fail_locked(error, death);
}

void Link::close(const Error& error) {
  const Lock receiving(receive_mutex_);
  shut_down();
  fail_locked(error, Death::not_proved);
}

Descriptor Link::goodbye() const noexcept {
  return {.kind = MessageKind::goodbye, .tag = retired() ? 1u : 0u};
}

void Link::retire(const Error& error) {
  life_.agree();
  shut_down();
  fail_locked(error, Death::not_proved);
}

void Link::fail_locked(const Error& error, Death death) {
  const bool proved = death == Death::proved;
  const bool first = life_.end(error, proved ? LinkLife::State::died : LinkLife::State::failed);
  on_failed(death);
  if (!first) {
    if (proved) sinks_.prove_death();
    return;
  }
  // The kernel closes the sockets of a process before it says that the process is dead: the more
  // memory it had, the longer before.
  if (!proved) sinks_.await_proof();
  tell_sinks(error);
  if (observer_ != nullptr) observer_->on_ended(*this, &error);
}

void Link::tell_sinks(const Error& error) {
  budget_.end();
  sinks_.end(error);
}

void Link::drop_sinks() {
  SinkTable::Sinks sinks;
  const Lock receiving(receive_mutex_);
  sinks = sinks_.take_all();
}

void Link::end_in_order() {
  const Error error{ErrorCode::end_of_stream, "link.goodbye",
                    "peer " + peer_name_ + " closed its context"};
  if (!life_.end(error, LinkLife::State::in_order)) return;
  tell_sinks(error);
  if (observer_ != nullptr) observer_->on_ended(*this, nullptr);
}

Error Link::end_error() const {
  if (const Error* error = life_.error()) return *error;
  return Error{ErrorCode::internal, "link.end_error",
               "the link to " + peer_name_ + " has not ended"};
}

Error Link::violation(std::string_view where, std::string detail) const {
  return Error{ErrorCode::protocol_violation, where,
               "peer " + peer_name_ + ": " + std::move(detail)};
}

}  // namespace tendon::v0::detail
