// SPDX-License-Identifier: Apache-2.0
#include "group/staging.hpp"

#include <algorithm>
#include <bit>

namespace tendon::inline v0::detail {
namespace {

// Members decide by their own clocks, and one that streams beside one that does not is slower than
// both: where it is close, all stay with the caches.
constexpr double kClearly = 0.7;

std::size_t index_of(CopyHint hint) { return hint == CopyHint::cached ? 0 : 1; }

}  // namespace

double Staging::Trials::best() const noexcept {
  return count < 2 ? ns_per_byte[0] : std::min(ns_per_byte[0], ns_per_byte[1]);
}

Staging::Class* Staging::class_of(CollectiveOp op, std::uint64_t size_bytes) noexcept {
  if (size_bytes < kSmallestBytes) return nullptr;
  const auto doublings = static_cast<std::size_t>(std::bit_width(size_bytes / kSmallestBytes)) - 1;
  const std::size_t size = std::min(doublings, classes_[0].size() - 1);
  switch (op) {
    case CollectiveOp::all_reduce:
      return &classes_[0][size];
    case CollectiveOp::all_gather:
      return &classes_[1][size];
    case CollectiveOp::reduce_scatter:
      return &classes_[2][size];
    default:
      return nullptr;
  }
}

CopyHint Staging::learned(const Class& of) noexcept {
  const Trials& cached = of.trials[index_of(CopyHint::cached)];
  const Trials& streaming = of.trials[index_of(CopyHint::streaming)];
  const bool both = streaming.count != 0 && cached.count != 0;
  return both && streaming.best() < kClearly * cached.best() ? CopyHint::streaming
                                                             : CopyHint::cached;
}

Staging::Plan Staging::plan(CollectiveOp op, std::uint64_t size_bytes) noexcept {
  if (forced_) return {*forced_, false};
  if (size_bytes < kSmallestBytes) return {};
  Class* const own = class_of(op, size_bytes);
  // Where some only write and others only read, a member would see half of what it costs.
  if (own == nullptr) return {learned(*class_of(CollectiveOp::all_reduce, size_bytes)), false};
  const std::uint64_t n = own->operations++;
  const std::uint64_t turn = n < kFirstTrials ? n % 2 : n % kPeriod;
  if (turn < 2) return {turn == 0 ? CopyHint::cached : CopyHint::streaming, true};
  return {learned(*own), false};
}

void Staging::tried(CollectiveOp op, std::uint64_t size_bytes, CopyHint hint,
                    std::uint64_t ns) noexcept {
  Class* const own = class_of(op, size_bytes);
  if (own == nullptr) return;
  Trials& trials = own->trials[index_of(hint)];
  trials.ns_per_byte[trials.count++ % trials.ns_per_byte.size()] =
      static_cast<double>(ns) / static_cast<double>(size_bytes);
}

}  // namespace tendon::inline v0::detail
