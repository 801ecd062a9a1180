// SPDX-License-Identifier: Apache-2.0
#include "runtime/spin_budget.hpp"

#include <algorithm>

namespace tendon::v0::detail {
namespace {

constexpr SpinBudget::Duration kBrief{4};
constexpr std::uint32_t kConfident = 3;
constexpr std::uint32_t kMostConfident = 8;

}  // namespace

// As long as this thread's waking and that of the peer, which may have to be woken first. A thread
// that spins so in vain has spent three times what sleeping at once would have cost.
SpinBudget::Duration SpinBudget::now() const {
  return confidence_.load(std::memory_order_relaxed) >= kConfident ? 2 * wake_up_ : kBrief;
}

void SpinBudget::slept(std::chrono::steady_clock::duration after_spin) {
  // The last part of it was this thread's own waking.
  if (now() + after_spin <= 3 * wake_up_)
    soon();
  else
    late();
}

void SpinBudget::soon() {
  const std::uint32_t confidence = confidence_.load(std::memory_order_relaxed);
  if (confidence < kMostConfident) confidence_.store(confidence + 1, std::memory_order_relaxed);
}

void SpinBudget::late() {
  const std::uint32_t confidence = confidence_.load(std::memory_order_relaxed);
  if (confidence > 0) {
    confidence_.store(confidence - std::min(confidence, std::uint32_t{2}),
                      std::memory_order_relaxed);
  }
}

}  // namespace tendon::v0::detail
