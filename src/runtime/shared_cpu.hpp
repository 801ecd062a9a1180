// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tendon::v0::detail {

/// Notices that the thread that spins and the peer it waits for are on one CPU: the peer runs only
/// while the thread yields. Each yield then is two switches, and the kernel leaves both there for
/// tens of milliseconds while another CPU is idle, because what ran a moment ago has a warm cache.
/// A thread that sleeps is woken on an idle CPU, so one sleep instead of a spin parts the two.
///
///     met in a row 0 ... patience    a yield that was taken: +1; else 0, and patience 8
///     patience     8, 16 ... 1024    should_part(): x 2, for there may be no idle CPU
///
/// Owns:    two counters.
/// Threads: thread-safe; an update that races with another may be lost.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a load or two, and a store where something changed.
class SharedCpu {
 public:
  /// A spin met what it waited for right after a yield that took so long; zero: not after one.
  void met(std::chrono::steady_clock::duration yielded);
  /// True: the next wait should sleep at once. Asking takes it back.
  [[nodiscard]] bool should_part();

 private:
  static constexpr std::uint32_t kPatience = 8;

  std::atomic<std::uint32_t> in_yield_{0};
  std::atomic<std::uint32_t> patience_{kPatience};
};

}  // namespace tendon::v0::detail
