// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <tendon/core/export.hpp>

namespace tendon {
inline namespace v0 {

/// Counts how often each value occurred: latencies in nanoseconds, sizes in bytes; any unsigned
/// number.
///
/// Example:
///   Histogram latency_ns;
///   const auto start = std::chrono::steady_clock::now();
///   pipe.send(batch, 1s).value();
///   latency_ns.record((std::chrono::steady_clock::now() - start).count());
///   std::cout << "p99 " << latency_ns.percentile(99) << " ns of " << latency_ns.count() << '\n';
///
/// Owns:    about 15 KiB, fixed, whatever is recorded.
/// Threads: any number record, merge and read at once; a reader sees each value that was recorded
///          before.
/// Errors:  none; every 64-bit value has a bucket.
/// Blocks:  never.
/// Cost:    record() is one relaxed atomic addition and a compare; reading walks all buckets.
///
/// Buckets are log-linear, the idea of HdrHistogram: values below 32 are exact, and every power of
/// two above is cut into 32 equal buckets. A percentile is therefore off by at most 1/64 of its
/// value (1.6 %).
class TENDON_API Histogram {
 public:
  void record(std::uint64_t value) noexcept {
    buckets_[bucket_of(value)].fetch_add(1, std::memory_order_relaxed);
    raise_max(value);
  }

  /// Number of values recorded.
  [[nodiscard]] std::uint64_t count() const noexcept;
  /// The largest value recorded, exact; 0 when there is none.
  [[nodiscard]] std::uint64_t max() const noexcept { return max_.load(std::memory_order_relaxed); }
  /// The value that `percent` of all values do not exceed, to the nearest bucket: percentile(99.9).
  /// `percent` is clamped to [0, 100]; 0 returns the smallest value, 100 the largest. Returns 0
  /// when there are no values.
  [[nodiscard]] std::uint64_t percentile(double percent) const noexcept;
  /// Adds everything `other` has recorded.
  void merge(const Histogram& other) noexcept;

 private:
  static constexpr int kSubBits = 5;
  static constexpr std::size_t kSubCount = std::size_t{1} << kSubBits;
  static constexpr std::size_t kBucketCount = (64 - kSubBits + 1) * kSubCount;

  static constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
    if (value < kSubCount) return static_cast<std::size_t>(value);
    const int shift = static_cast<int>(std::bit_width(value)) - kSubBits - 1;
    return (static_cast<std::size_t>(shift) << kSubBits) + static_cast<std::size_t>(value >> shift);
  }
  static std::uint64_t middle_of(std::size_t bucket) noexcept;

  void raise_max(std::uint64_t value) noexcept {
    std::uint64_t seen = max_.load(std::memory_order_relaxed);
    while (seen < value && !max_.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }

  std::array<std::atomic<std::uint64_t>, kBucketCount> buckets_{};
  std::atomic<std::uint64_t> max_{0};
};

}  // namespace v0
}  // namespace tendon
