// SPDX-License-Identifier: Apache-2.0
#include "transport/link.hpp"

#include <string>
#include <utility>

namespace tendon::v0::detail {

// NOLINTNEXTLINE(performance-unnecessary-value-param): those who override it keep the segment
Result<void> MessageSink::on_segment(std::uint32_t id, std::shared_ptr<Segment>) {
  return Error{ErrorCode::protocol_violation, "link.segment",
               "segment " + std::to_string(id) + " was published on a pipe that takes none"};
}

Result<bool> Link::publish_segment(std::uint32_t, std::uint32_t, const Segment&) {
  return Error{ErrorCode::not_supported, "link.publish",
               "peer " + peer_name_ + " cannot map memory of this process: " + path_.to_string()};
}

Link::Link(Path path, PeerIdentity peer, std::uint64_t cap_bytes, std::uint64_t peer_cap_bytes)
    : path_(std::move(path)),
      peer_(std::move(peer)),
      peer_name_(peer_.to_string()),
      cap_bytes_(cap_bytes),
      peer_cap_bytes_(peer_cap_bytes) {}

void Link::attach(std::uint32_t pipe, std::shared_ptr<MessageSink> sink) {
  last_sink_ = nullptr;
  sinks_[pipe] = std::move(sink);
}

void Link::detach(std::uint32_t pipe) {
  drop_claims(pipe);
  last_sink_ = nullptr;
  sinks_.erase(pipe);
}

MessageSink* Link::sink_of(std::uint32_t pipe) noexcept {
  if (last_sink_ != nullptr && last_pipe_ == pipe) return last_sink_;
  const auto found = sinks_.find(pipe);
  if (found == sinks_.end()) return nullptr;
  last_pipe_ = pipe;
  last_sink_ = found->second.get();
  return last_sink_;
}

void Link::dispatch(Incoming&& incoming) {
  if (MessageSink* sink = sink_of(incoming.descriptor.pipe)) {
    sink->on_message(std::move(incoming));
  } else {
    ++dropped_messages_;
    incoming = Incoming();  // its body goes back now
  }
}

void Link::fail(const Error& error, bool death_proved) {
  const Lock receiving(receive_mutex_);
  fail_locked(error, death_proved);
}

void Link::close(const Error& error) {
  const Lock receiving(receive_mutex_);
  shut_down();
  fail_locked(error, false);
}

void Link::fail_locked(const Error& error, bool death_proved) {
  bool first = false;
  {
    const Lock lock(end_mutex_);
    first = !end_error_.has_value();
    if (first) end_error_ = error;
  }
  if (death_proved) death_proved_ = true;
  ended_.store(true, std::memory_order_release);
  on_failed(death_proved);
  if (!first) {
    if (!death_proved) return;
    for (const auto& known : std::exchange(without_proof_, {}))
      if (const auto sink = known.lock()) sink->on_death_proved();
    return;
  }
  // The kernel closes the sockets of a process before it says that the process is dead: the more
  // memory it had, the longer before.
  if (!death_proved)
    for (const auto& [pipe, sink] : sinks_) without_proof_.push_back(sink);
  tell_sinks(error);
  if (observer_ != nullptr) observer_->on_ended(*this, &error);
}

// The last word. A pipe holds its link: to go on holding the pipe would keep both for ever.
void Link::tell_sinks(const Error& error) {
  last_sink_ = nullptr;
  const auto sinks = std::exchange(sinks_, {});
  for (const auto& [pipe, sink] : sinks) sink->on_link_failed(error);
}

void Link::end_in_order() {
  const Error error{ErrorCode::end_of_stream, "link.goodbye",
                    "peer " + peer_name_ + " closed its context"};
  {
    const Lock lock(end_mutex_);
    if (end_error_) return;
    end_error_ = error;
  }
  ended_.store(true, std::memory_order_release);
  tell_sinks(error);
  if (observer_ != nullptr) observer_->on_ended(*this, nullptr);
}

Error Link::end_error() const {
  const Lock lock(end_mutex_);
  if (end_error_) return *end_error_;
  return Error{ErrorCode::internal, "link.end_error",
               "the link to " + peer_name_ + " has not ended"};
}

Error Link::violation(std::string_view where, std::string detail) const {
  return Error{ErrorCode::protocol_violation, where,
               "peer " + peer_name_ + ": " + std::move(detail)};
}

}  // namespace tendon::v0::detail
