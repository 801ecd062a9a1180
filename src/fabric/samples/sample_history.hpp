// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "fabric/samples/kept_sample.hpp"

namespace tendon::v0::detail {

/// The newest samples of a publisher, by their sequence: 1, 2, 3, ...
///
/// Owns:    shares of the samples.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    an index; push() ends one sample when it is full.
class SampleHistory {
 public:
  using Kept = std::shared_ptr<const KeptSample>;

  explicit SampleHistory(std::uint32_t most) : most_(most) {}

  /// The sequence of the newest sample; 0 before the first one.
  [[nodiscard]] std::uint64_t last() const noexcept { return last_; }
  /// The oldest one that is kept; last() + 1 when none is.
  [[nodiscard]] std::uint64_t first() const noexcept { return last_ + 1 - kept_.size(); }
  /// The oldest one that would be kept without a want of memory.
  [[nodiscard]] std::uint64_t due_first() const noexcept {
    return last_ < most_ ? 1 : last_ + 1 - most_;
  }
  /// Null: it is not kept, or not there yet.
  [[nodiscard]] Kept find(std::uint64_t sequence) const noexcept {
    if (sequence < first() || sequence > last_) return nullptr;
    return kept_[sequence - first()];
  }
  /// Adds a sample; its sequence is last() + 1.
  void push(Kept sample) {
    if (kept_.size() == most_) kept_.pop_front();
    kept_.push_back(std::move(sample));
    ++last_;
  }
  /// True if one before `end` has a slot of the publish pool. Dropping others frees none.
  [[nodiscard]] bool has_slot_before(std::uint64_t end) const noexcept {
    for (std::uint64_t sequence = first(); sequence <= last_ && sequence < end; ++sequence)
      if (kept_[sequence - first()]->has_slot()) return true;
    return false;
  }
  /// Drops the oldest one, for want of memory. False: there is none.
  bool trim() noexcept {
    if (kept_.empty()) return false;
    kept_.pop_front();
    return true;
  }

 private:
  const std::uint32_t most_;
  std::deque<Kept> kept_;
  std::uint64_t last_ = 0;
};

}  // namespace tendon::v0::detail
