// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tendon/control/limits.hpp>
#include <utility>
#include <vector>

namespace tendon::v0::detail {

/// The sending end of a flow: numbers its messages and keeps each until every receiver has applied
/// it, to send it again.
///
/// Owns:    the messages that it keeps, at most kMaxRetainedBytes: the oldest are dropped first.
/// Threads: one at a time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a place in a queue for each message.
class FlowSender {
 public:
  using Kept = std::shared_ptr<const std::string>;

  explicit FlowSender(std::uint64_t cap_bytes = kMaxRetainedBytes) : cap_bytes_(cap_bytes) {}

  /// The number of the next message, 1 at first.
  [[nodiscard]] std::uint64_t next_sequence() const noexcept { return first_ + kept_.size(); }
  /// The highest number that was sent, 0 when none was.
  [[nodiscard]] std::uint64_t sent() const noexcept { return next_sequence() - 1; }
  /// Keeps the message that was sent with next_sequence().
  void keep(Kept message) {
    bytes_ += message->size();
    kept_.push_back(std::move(message));
    while (bytes_ > cap_bytes_ && kept_.size() > 1) drop_oldest();
  }
  /// Drops messages that every receiver has applied: all up to this one.
  void applied(std::uint64_t sequence) {
    while (!kept_.empty() && first_ <= sequence) drop_oldest();
  }
  /// The oldest that can be sent again; next_sequence() when there is none.
  [[nodiscard]] std::uint64_t first_kept() const noexcept { return first_; }
  /// The kept messages from `first` to `last`.
  [[nodiscard]] std::vector<Kept> between(std::uint64_t first, std::uint64_t last) const {
    std::vector<Kept> found;
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (first_ + i >= first && first_ + i <= last) found.push_back(kept_[i]);
    }
    return found;
  }

 private:
  void drop_oldest() {
    bytes_ -= kept_.front()->size();
    kept_.pop_front();
    ++first_;
  }

  std::uint64_t cap_bytes_;
  std::deque<Kept> kept_;
  std::uint64_t first_ = 1;  // number of the front
  std::uint64_t bytes_ = 0;
};

}  // namespace tendon::v0::detail
