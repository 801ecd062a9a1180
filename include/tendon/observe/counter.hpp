// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace tendon {
inline namespace v0 {

/// Counts events: messages, bytes, copies.
///
/// Owns:    one 64-bit word.
/// Threads: any number add and read; a reader may see a value that is a moment old.
/// Errors:  none; it wraps at 2^64.
/// Blocks:  never.
/// Cost:    one relaxed atomic addition. Counters of different writers belong on different lines.
class Counter {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
};

}  // namespace v0
}  // namespace tendon
