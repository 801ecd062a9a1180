// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "fabric/samples/pace.hpp"
#include "fabric/samples/sample_history.hpp"

namespace tendon::v0::detail {

/// The position of one subscription in the history of its publisher, and the samples since the last
/// shown one that it was not shown. First are those that its rate leaves out, then lost ones.
///
///   next() is in the history and due, or last() + 1: catch_up() first moves it there and counts
///   shown() moves it by one and forgets the earlier counts
///
/// Owns:    counters.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a few additions.
class Cursor {
 public:
  /// Begins at the oldest sample that is kept.
  explicit Cursor(const SampleHistory& history, Pace pace = {})
      : next_(history.first()), shown_(next_ - 1), pace_(pace) {}
  /// Continues after `seen`, which its subscriber had before.
  Cursor(const SampleHistory& history, std::uint64_t seen, Pace pace = {})
      : next_(std::min(seen, history.last()) + 1), shown_(next_ - 1), pace_(pace) {}

  /// The next sequence to be shown.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  /// True if there is nothing left to show.
  [[nodiscard]] bool is_at_end(const SampleHistory& history) const noexcept {
    return next_ > history.last();
  }
  /// True if that sample was shown, or a later one.
  [[nodiscard]] bool has_shown(std::uint64_t sequence) const noexcept { return sequence <= shown_; }
  /// The number of samples left out since the last shown one.
  [[nodiscard]] std::uint64_t left_out() const noexcept { return thinned_; }
  /// Skips samples that are not kept any more, and those that are not due. Returns the number of
  /// those left out now.
  std::uint64_t catch_up(const SampleHistory& history) noexcept {
    const std::uint64_t before = thinned_;
    if (next_ < history.first()) pass_over_what_went(history);
    if (pace_.takes_all()) return 0;
    for (auto sample = history.find(next_); sample != nullptr; sample = history.find(next_)) {
      if (pace_.is_due(sample->header.stamp)) break;
      ++next_;
      ++thinned_;
    }
    return thinned_ - before;
  }
  /// The tag of the next sample: how many before it were lost, and kShortOfMemory unless all of
  /// them were lost because the subscriber was behind.
  [[nodiscard]] std::uint32_t tag() const noexcept {
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(lost(), kMostInTag));
    return trimmed_ ? count | kShortOfMemory : count;
  }
  /// The count for the end: how many up to `last` were lost, or will not be shown.
  [[nodiscard]] std::uint64_t lost_until(std::uint64_t last) const noexcept {
    return lost() + (next_ > last ? 0 : last + 1 - next_);
  }
  /// Skips the next one, which cannot be shown to this subscriber: it is lost.
  void pass_over() noexcept {
    ++next_;
    pace_.make_due();
  }
  /// Moves behind a shown sample with this `stamp`.
  void shown(std::uint64_t stamp) noexcept {
    shown_ = next_++;
    thinned_ = 0;
    trimmed_ = false;
    pace_.took(stamp);
  }

  static constexpr std::uint32_t kShortOfMemory = 1u << 31;
  static constexpr std::uint32_t kMostInTag = kShortOfMemory - 1;

 private:
  [[nodiscard]] std::uint64_t lost() const noexcept { return next_ - 1 - shown_ - thinned_; }
  // A dropped sample was not due if the one after it is not. Otherwise it is lost, from the first
  // one on: so nothing is left out after a lost sample.
  void pass_over_what_went(const SampleHistory& history) noexcept {
    const auto oldest = history.find(history.first());
    if (oldest != nullptr && lost() == 0 && !pace_.is_due(oldest->header.stamp)) {
      thinned_ += history.first() - next_;
    } else {
      if (std::max(next_, history.due_first()) < history.first()) trimmed_ = true;
      pace_.make_due();
    }
    next_ = history.first();
  }

  std::uint64_t next_;
  std::uint64_t shown_;  // the last one, or the one before the first
  std::uint64_t thinned_ = 0;
  bool trimmed_ = false;  // some were lost for want of memory
  Pace pace_;
};

}  // namespace tendon::v0::detail
