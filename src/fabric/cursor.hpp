// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "fabric/sample_history.hpp"

namespace tendon::v0::detail {

/// How far one subscription is in the history of its publisher, and what it has lost since the last
/// sample that it was shown.
///
///   next() is in the history, or last() + 1: catch_up() first moves it there and counts
///   shown() moves it by one and forgets what was lost before
///
/// Owns:    counters.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a few additions.
class Cursor {
 public:
  /// Begins at the oldest sample that is kept.
  explicit Cursor(const SampleHistory& history) : next_(history.first()) {}
  /// Goes on behind `seen`, which its subscriber had before.
  Cursor(const SampleHistory& history, std::uint64_t seen)
      : next_(std::min(seen, history.last()) + 1) {}

  /// The sequence that is to be shown next.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  /// Is there nothing left to show?
  [[nodiscard]] bool is_at_end(const SampleHistory& history) const noexcept {
    return next_ > history.last();
  }
  /// Passes over what is not kept any more.
  void catch_up(const SampleHistory& history) noexcept {
    if (next_ >= history.first()) return;
    const std::uint64_t due = std::min(history.first(), history.due_first());
    if (next_ < due) overflowed_ += due - next_;
    next_ = history.first();
  }
  /// What goes with the next sample as its tag: how many before it were lost because the
  /// subscriber was behind. What was lost beside these was given up for want of memory.
  [[nodiscard]] std::uint32_t tag() const noexcept {
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(overflowed_, std::numeric_limits<std::uint32_t>::max()));
  }
  /// The next one cannot be shown to this subscriber: it is lost for it.
  void pass_over() noexcept {
    ++next_;
    ++overflowed_;
  }
  void shown() noexcept {
    ++next_;
    overflowed_ = 0;
  }

 private:
  std::uint64_t next_;
  std::uint64_t overflowed_ = 0;
};

}  // namespace tendon::v0::detail
