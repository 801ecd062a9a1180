// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <tendon/observe/histogram.hpp>

namespace tendon::v0 {

std::uint64_t Histogram::middle_of(std::size_t bucket) noexcept {
  if (bucket < 2 * kSubCount) return bucket;
  const std::size_t shift = (bucket >> kSubBits) - 1;
  const std::uint64_t lowest = (kSubCount + bucket % kSubCount) << shift;
  return lowest + ((std::uint64_t{1} << shift) >> 1);
}

std::uint64_t Histogram::count() const noexcept {
  std::uint64_t sum = 0;
  for (const auto& bucket : buckets_) sum += bucket.load(std::memory_order_relaxed);
  return sum;
}

std::uint64_t Histogram::percentile(double percent) const noexcept {
  const std::uint64_t total = count();
  if (total == 0) return 0;
  const double share = std::clamp(std::isnan(percent) ? 0.0 : percent, 0.0, 100.0) / 100.0;
  // The rank is rounded up, so that percentile(99) of 10 values is the 10th; the small step back
  // keeps a product such as 0.999 * 1000, which lies a hair above 999, from counting one too many.
  const double exact = share * static_cast<double>(total);
  const auto rank =
      std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::ceil(exact - exact * 1e-12)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < kBucketCount; ++i) {
    seen += buckets_[i].load(std::memory_order_relaxed);
    // The middle of the last bucket may lie above everything that was recorded.
    if (seen >= rank) return std::min(middle_of(i), max());
  }
  return max();
}

void Histogram::merge(const Histogram& other) noexcept {
  for (std::size_t i = 0; i < kBucketCount; ++i) {
    const std::uint64_t n = other.buckets_[i].load(std::memory_order_relaxed);
    if (n != 0) buckets_[i].fetch_add(n, std::memory_order_relaxed);
  }
  raise_max(other.max());
}

}  // namespace tendon::v0
