// SPDX-License-Identifier: Apache-2.0
// The events of a session of Zenoh, before they are reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// An announcement appeared or disappeared.
struct ZenohToken {
  TokenChange change;
  std::string key;
};
/// Missed tokens, or messages: how many of each key. Beyond kMostMissedKeys they count for "".
struct ZenohMissed {
  static constexpr std::size_t kMostMissedKeys = 64;
  std::map<std::string, std::uint64_t> messages;
  void add(const std::string& key, std::uint64_t count) {
    const bool is_named = messages.contains(key) || messages.size() < kMostMissedKeys;
    messages[is_named ? key : std::string()] += count;
  }
};
using ZenohEvent = std::variant<ZenohToken, ZenohMessage, std::unique_ptr<ZenohQuestion>,
                                SessionState, Ending, Matching, ZenohMissed>;

/// Events in the order of arrival. Messages and tokens have a budget of bytes each; the rest is
/// small, and always has room.
///
/// Owns:    the events.
/// Threads: its owner's lock is held.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    an allocation an event.
class ZenohEventQueue {
 public:
  static constexpr std::uint64_t kMaxQueuedBytes = std::uint64_t{64} << 20;
  static constexpr std::uint64_t kMaxQueuedTokenBytes = std::uint64_t{32} << 20;

  struct Queued {
    std::uint64_t recipient = 0;
    ZenohEvent event;
    std::uint64_t size_bytes = 0;
  };

  [[nodiscard]] bool empty() const noexcept { return queue_.empty(); }
  [[nodiscard]] bool has_room_for(const ZenohEvent& event) const {
    const std::uint64_t size_bytes = bytes_of(event);
    const bool is_token = std::holds_alternative<ZenohToken>(event);
    const std::uint64_t most = is_token ? kMaxQueuedTokenBytes : kMaxQueuedBytes;
    return size_bytes == 0 || (is_token ? token_bytes_ : message_bytes_) + size_bytes <= most;
  }
  void push(std::uint64_t recipient, ZenohEvent event) {
    const std::uint64_t size_bytes = bytes_of(event);
    queued_bytes_of(event) += size_bytes;
    queue_.push_back(std::make_unique<Queued>(Queued{recipient, std::move(event), size_bytes}));
  }
  /// Precondition: not empty.
  [[nodiscard]] std::unique_ptr<Queued> pop() {
    std::unique_ptr<Queued> next = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_of(next->event) -= next->size_bytes;
    return next;
  }

 private:
  /// The cost of an event in the queue besides its bytes.
  static constexpr std::uint64_t kEventBytes = 256;

  [[nodiscard]] static std::uint64_t bytes_of(const ZenohEvent& event) {
    if (const auto* const token = std::get_if<ZenohToken>(&event))
      return kEventBytes + token->key.size();
    const auto* const message = std::get_if<ZenohMessage>(&event);
    if (message == nullptr) return 0;
    return kEventBytes + message->key.size() + message->encoding.size() +
           message->payload.size_bytes() + message->attachment.size_bytes();
  }
  [[nodiscard]] std::uint64_t& queued_bytes_of(const ZenohEvent& event) {
    return std::holds_alternative<ZenohToken>(event) ? token_bytes_ : message_bytes_;
  }

  std::deque<std::unique_ptr<Queued>> queue_;
  std::uint64_t message_bytes_ = 0;
  std::uint64_t token_bytes_ = 0;
};

}  // namespace tendon::v0::detail
