// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

namespace tendon_test {

/// Calls `body` from two threads until each has seen the other advance `kSwitches` times, so that
/// they truly overlapped, on one core by preemption too. Returns the number of calls of each
/// thread.
template <class Body>
std::array<std::uint64_t, 2> run_interleaved(Body body) {
  constexpr int kSwitches = 20;
  std::array<std::atomic<std::uint64_t>, 2> calls{};
  std::atomic<bool> is_over{false};
  const auto run = [&](std::size_t me) {
    std::uint64_t seen = 0;
    for (int switches = 0; switches < kSwitches && !is_over.load(std::memory_order_relaxed);) {
      body();
      calls[me].fetch_add(1, std::memory_order_relaxed);
      const std::uint64_t other = calls[1 - me].load(std::memory_order_relaxed);
      if (other != seen) ++switches;
      seen = other;
    }
    is_over.store(true);
  };
  {
    std::jthread other([&] { run(1); });
    run(0);
  }
  return {calls[0].load(), calls[1].load()};
}

}  // namespace tendon_test
