// SPDX-License-Identifier: Apache-2.0
#include "runtime/shared_cpu.hpp"

#include <algorithm>

namespace tendon::v0::detail {
namespace {

// A yield that nobody takes lasts 0.2 to 0.5 us; two switches and a peer that answers take more.
constexpr std::chrono::microseconds kTaken{1};
constexpr std::uint32_t kMostPatient = 1024;

}  // namespace

void SharedCpu::met(std::chrono::steady_clock::duration yielded) {
  const std::uint32_t in_yield = in_yield_.load(std::memory_order_relaxed);
  if (yielded >= kTaken) return in_yield_.store(in_yield + 1, std::memory_order_relaxed);
  if (in_yield != 0) in_yield_.store(0, std::memory_order_relaxed);
  if (patience_.load(std::memory_order_relaxed) != kPatience)
    patience_.store(kPatience, std::memory_order_relaxed);
}

bool SharedCpu::should_part() {
  const std::uint32_t patience = patience_.load(std::memory_order_relaxed);
  if (in_yield_.load(std::memory_order_relaxed) < patience) return false;
  in_yield_.store(0, std::memory_order_relaxed);
  patience_.store(std::min(2 * patience, kMostPatient), std::memory_order_relaxed);
  return true;
}

}  // namespace tendon::v0::detail
