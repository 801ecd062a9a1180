// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <tendon/core/error.hpp>
#include <utility>

#include "group/membership/early_words.hpp"

namespace tendon::v0::detail {

/// How far a member continues in its epoch, and why no further:
///
///     not begun: nothing is done --begin()--> runs: everything is done
///     runs --end(n)--> ends at operation n: earlier ones continue
///     ends at n --end(m), m < n--> ends at m, with the reason of that
///
/// Owns:    the reason, and the word of another member behind it.
/// Threads: first() and values computed from it may be read anywhere; else its owner has a lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    nothing.
class EpochEnd {
 public:
  static constexpr std::uint64_t kAll = 0;
  static constexpr std::uint64_t kRuns = ~std::uint64_t{0};

  /// The first operation that is not done in this epoch.
  [[nodiscard]] std::uint64_t first() const noexcept {
    return first_.load(std::memory_order_acquire);
  }
  [[nodiscard]] bool runs() const noexcept { return first() == kRuns; }
  /// True if an operation with this number, of which this is the lower half, is not done.
  [[nodiscard]] bool ends_before(std::uint32_t sequence) const noexcept {
    const std::uint64_t ends_at = first();
    if (ends_at == kRuns || ends_at == kAll) return ends_at == kAll;
    return static_cast<std::int32_t>(sequence - static_cast<std::uint32_t>(ends_at)) >= 0;
  }

  /// Begins the next epoch.
  void begin() {
    why_.reset();
    word_.reset();
    told_ = kRuns;
    first_.store(kRuns, std::memory_order_release);
  }
  /// Ends it from `first` on. False: it had ended that early before.
  bool end(std::uint64_t first, Error why, std::optional<AbortWord> word = {}) {
    if (first >= first_) return false;
    why_ = std::move(why);
    word_ = std::move(word);
    first_.store(first, std::memory_order_release);
    return true;
  }
  /// Ends it there, or where it had ended before; `why` counts only if there is no reason yet.
  void end_unless_known(std::uint64_t first, const Error& why) {
    if (!why_) why_ = why;
    if (first < first_) first_.store(first, std::memory_order_release);
  }

  /// Notes that all members know that it ends there, or earlier.
  void note_told(std::uint64_t first) { told_ = std::min(told_, first); }
  [[nodiscard]] bool any_told() const noexcept { return told_ != kRuns; }
  /// True if it ends earlier than the others know.
  [[nodiscard]] bool must_tell() const noexcept { return first_ < told_; }

  [[nodiscard]] const std::optional<Error>& why() const noexcept { return why_; }
  /// Another member's word, if that is the reason; empty afterwards.
  [[nodiscard]] std::optional<AbortWord> take_word() { return std::exchange(word_, std::nullopt); }
  /// The word of this member: the first one. Precondition: it ends, for a reason.
  [[nodiscard]] AbortWord word_of(GroupPlace self, std::uint64_t epoch) const {
    AbortWord word;
    if (word_) {
      word = *word_;
    } else {
      word.text = why_->detail;
      word.envelope = {.kind = EnvelopeKind::abort,
                       .from = self,
                       .epoch = epoch,
                       .extra = self.value,
                       .tag = static_cast<std::uint32_t>(why_->code)};
    }
    word.envelope.sequence = first_;
    return word;
  }
  /// The same, for a caller that tells all others.
  [[nodiscard]] AbortWord tell(GroupPlace self, std::uint64_t epoch) {
    note_told(first_);
    return word_of(self, epoch);
  }

 private:
  std::atomic<std::uint64_t> first_{kAll};  // nothing is done before the first epoch
  std::uint64_t told_ = kRuns;
  std::optional<Error> why_;
  std::optional<AbortWord> word_;
};

}  // namespace tendon::v0::detail
