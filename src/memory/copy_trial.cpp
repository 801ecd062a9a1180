// SPDX-License-Identifier: Apache-2.0
#include "memory/copy_trial.hpp"

#include <algorithm>
#include <span>

namespace tendon::v0::detail {
namespace {

/// A share of the time of the other way.
constexpr double kClearly = 0.9;

double median(std::span<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// A ratio is formed inside a round: other work of the machine changes from round to round, and
// slows neighbours alike.
bool is_clearly_faster(const CopyFigures::Rounds& way, const CopyFigures::Rounds& other) {
  std::array<double, kCopyRounds> ratios{};
  for (std::size_t round = 0; round < kCopyRounds; ++round)
    ratios[round] = way[round] / other[round];
  std::ranges::sort(ratios);
  return ratios[kCopyRounds - 2] < 1 && ratios[kCopyRounds / 2] <= kClearly;
}

}  // namespace

double CopyFigures::ns_per_byte(CopyHint way) const {
  Rounds rounds = of(way);
  return median(rounds);
}

CopyHint choose_copy(const CopyFigures& figures) {
  const bool is_fetched_ahead =
      is_clearly_faster(figures.of(CopyHint::prefetched), figures.of(CopyHint::streaming));
  const CopyHint around = is_fetched_ahead ? CopyHint::prefetched : CopyHint::streaming;
  return is_clearly_faster(figures.of(around), figures.of(CopyHint::cached)) ? around
                                                                             : CopyHint::cached;
}

CopyHint CopyTrial::way() const { return paused_ ? CopyHint::cached : way_of_turn(); }

void CopyTrial::took(std::uint64_t bytes, std::uint64_t ns) {
  if (paused_) {
    paused_ = false;
    return;
  }
  if (settled_bytes_ < settling_bytes_) {
    settled_bytes_ += bytes;
    return;
  }
  sample_bytes_ += bytes;
  sample_ns_ += ns;
  if (sample_bytes_ < kSampleBytes) return;
  samples_[sample_count_++] = static_cast<double>(sample_ns_) / static_cast<double>(sample_bytes_);
  sample_bytes_ = sample_ns_ = 0;
  if (sample_count_ == samples_.size()) end_turn();
}

void CopyTrial::end_turn() {
  figures_.of(way_of_turn())[turn_ / kCopyHints.size()] = median(samples_);
  settled_bytes_ = sample_count_ = 0;
  ++turn_;
}

}  // namespace tendon::v0::detail
