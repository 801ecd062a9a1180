// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <tendon/control/limits.hpp>
#include <utility>

namespace tendon::v0::detail {

/// Messages that a receiver must ask for.
struct MissingRange {
  std::uint64_t first = 0;
  std::uint64_t last = 0;
  friend bool operator==(const MissingRange&, const MissingRange&) = default;
};

/// The receiving end of a flow: returns its messages in order and once, whichever way and in
/// whichever order they arrive.
///
/// A gap before an arrived message is missing at once, because ZeroMQ keeps the order of a
/// connection. A message that was announced, and after which nothing arrived, may still be under
/// way. It is missing when the sender announces it again some time later.
///
/// Owns:    messages that arrived too early, at most kMaxParkedMessages and kMaxParkedBytes.
/// Threads: one at a time.
/// Errors:  none: messages that cannot be parked are dropped, and asked for again.
/// Blocks:  never.
/// Cost:    nothing for a message in order.
template <class T>
class FlowReceiver {
 public:
  enum class Arrival : std::uint8_t {
    in_order,
    early,
    doubled,
    too_early,  ///< no place left; it will be sent again
  };

  /// `size_bytes` is the cost of keeping it.
  Arrival take(std::uint64_t sequence, T message, std::uint64_t size_bytes = 0) {
    if (sequence < next_ || waiting_.contains(sequence)) return Arrival::doubled;
    const bool in_order = sequence == next_;
    if (!in_order && (waiting_.size() >= kMaxParkedMessages ||
                      size_bytes > kMaxParkedBytes - std::min(kMaxParkedBytes, bytes_))) {
      return Arrival::too_early;
    }
    bytes_ += size_bytes;
    waiting_.emplace(sequence, Waiting{std::move(message), size_bytes});
    return in_order ? Arrival::in_order : Arrival::early;
  }
  /// The next message, which stays; nullptr when it has not arrived.
  [[nodiscard]] const T* peek() const {
    const auto found = waiting_.find(next_);
    return found == waiting_.end() ? nullptr : &found->second.message;
  }
  /// Takes the next message.
  [[nodiscard]] std::optional<T> next() {
    const auto found = waiting_.find(next_);
    if (found == waiting_.end()) return std::nullopt;
    T message = std::move(found->second.message);
    bytes_ -= found->second.size_bytes;
    waiting_.erase(found);
    ++next_;
    return message;
  }
  /// The highest number that next() returned.
  [[nodiscard]] std::uint64_t applied() const noexcept { return next_ - 1; }

  /// The messages to ask for after an arrival; each gap once.
  [[nodiscard]] std::optional<MissingRange> missing_before_parked() {
    const std::uint64_t first = first_absent();
    const auto later = waiting_.upper_bound(first);
    if (later == waiting_.end() || first <= asked_up_to_) return std::nullopt;
    asked_up_to_ = later->first - 1;
    return MissingRange{.first = first, .last = asked_up_to_};
  }
  /// The messages to ask for when the sender says at `now` that it has sent this many. Called for
  /// each of its heartbeats, so a lost request is repeated.
  [[nodiscard]] std::optional<MissingRange> missing_after_announced(
      std::uint64_t sent, std::chrono::steady_clock::time_point now) {
    if (now - announced_at_ < kUnderWay) return std::nullopt;
    const std::uint64_t before = std::exchange(announced_, sent);
    announced_at_ = now;
    const std::uint64_t first = first_absent();
    if (first > before) return std::nullopt;
    asked_up_to_ = before;
    return MissingRange{.first = first, .last = before};
  }

  /// How long a message that is not lost may take. Asking too early costs a double.
  static constexpr std::chrono::milliseconds kUnderWay{50};

 private:
  [[nodiscard]] std::uint64_t first_absent() const {
    std::uint64_t absent = next_;
    for (auto at = waiting_.find(absent); at != waiting_.end() && at->first == absent; ++at)
      ++absent;
    return absent;
  }

  struct Waiting {
    T message;
    std::uint64_t size_bytes;
  };
  std::map<std::uint64_t, Waiting> waiting_;  // in order and early ones
  std::uint64_t bytes_ = 0;                   // of all of them
  std::uint64_t next_ = 1;
  std::uint64_t announced_ = 0;  // by an earlier heartbeat
  std::chrono::steady_clock::time_point announced_at_ = {};
  std::uint64_t asked_up_to_ = 0;  // by missing_before_parked
};

}  // namespace tendon::v0::detail
