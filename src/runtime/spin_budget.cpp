// SPDX-License-Identifier: Apache-2.0
#include "runtime/spin_budget.hpp"

#include <algorithm>

namespace tendon::v0::detail {
namespace {

constexpr SpinBudget::Duration kBrief{4};
constexpr std::int32_t kConfident = 3;
constexpr std::int32_t kMostConfident = 8;

}  // namespace

// A long spin covers this thread's waking and that of the peer, which may have to be woken first. A
// failed one costs three times as much as sleeping at once.
SpinBudget::Duration SpinBudget::now() const { return is_long() ? 2 * wake_up_ : kBrief; }

bool SpinBudget::is_long() const {
  return confidence_.load(std::memory_order_relaxed) >= kConfident;
}

void SpinBudget::slept(std::chrono::steady_clock::duration after_spin) {
  const Duration spin = rest_.load(std::memory_order_relaxed) > 0 ? Duration(0) : now();
  // The last part of it was this thread's own waking.
  if (spin + after_spin <= 3 * wake_up_)
    soon();
  else
    late();
}

void SpinBudget::soon() {
  const std::int32_t confidence = confidence_.load(std::memory_order_relaxed);
  if (confidence < kMostConfident) {
    confidence_.store(confidence + 1, std::memory_order_relaxed);
  } else if (const auto penalty = penalty_.load(std::memory_order_relaxed);
             penalty > kLeastPenalty) {
    penalty_.store(penalty - 1, std::memory_order_relaxed);
  }
}

void SpinBudget::late() {
  const std::int32_t confidence = confidence_.load(std::memory_order_relaxed);
  if (confidence > 0) confidence_.store(std::max(confidence - 2, 0), std::memory_order_relaxed);
}

void SpinBudget::lost_cpu() {
  const std::int32_t penalty = penalty_.load(std::memory_order_relaxed);
  confidence_.store(-penalty, std::memory_order_relaxed);
  penalty_.store(std::min(2 * penalty, kLargestPenalty), std::memory_order_relaxed);
  std::int32_t next_rest = kShortestRest;
  if (since_loss_.load(std::memory_order_relaxed) < kFrequent) {
    next_rest = next_rest_.load(std::memory_order_relaxed);
    rest_.store(next_rest, std::memory_order_relaxed);
    next_rest = std::min(2 * next_rest, kLongestRest);
  }
  next_rest_.store(next_rest, std::memory_order_relaxed);
  since_loss_.store(0, std::memory_order_relaxed);
}

bool SpinBudget::rests() {
  if (const auto rest = rest_.load(std::memory_order_relaxed); rest > 0) {
    rest_.store(rest - 1, std::memory_order_relaxed);
    return true;
  }
  if (const auto waits = since_loss_.load(std::memory_order_relaxed); waits < kFrequent)
    since_loss_.store(waits + 1, std::memory_order_relaxed);
  return false;
}

}  // namespace tendon::v0::detail
