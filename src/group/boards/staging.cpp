// SPDX-License-Identifier: Apache-2.0
#include "group/boards/staging.hpp"

#include <algorithm>
#include <bit>
#include <tuple>

namespace tendon::v0::detail {
namespace {

// Members decide by their own clocks, and one that streams beside one that does not is slower than
// both. If the times are close, all stay with the caches.
constexpr double kClearly = 0.7;
// A member that pulls waits for the others once more in each chunk, and waits are not counted.
constexpr double kClearlyPulled = 0.5;

constexpr std::size_t kShown = 2;  // of the ways: the writing ones
constexpr std::size_t kAll = 3;

}  // namespace

double Staging::Trials::best() const noexcept {
  return count < 2 ? ns_per_byte[0] : std::min(ns_per_byte[0], ns_per_byte[1]);
}

std::size_t Staging::index_of_size(std::uint64_t size_bytes) noexcept {
  const auto doublings = static_cast<std::size_t>(std::bit_width(size_bytes / kSmallestBytes)) - 1;
  return std::min(doublings, std::tuple_size_v<decltype(pooled_)> - 1);
}

Staging::Class* Staging::class_of(CollectiveOp op, std::uint64_t size_bytes) noexcept {
  if (size_bytes < kSmallestBytes) return nullptr;
  const std::size_t size = index_of_size(size_bytes);
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

Staging::Way Staging::learned(const Class& of, std::size_t ways, Way otherwise) noexcept {
  const Trials& first = of.trials[static_cast<std::size_t>(otherwise)];
  if (first.count == 0) return otherwise;
  Way found = otherwise;
  double least = 1;  // of its time
  for (std::size_t i = 0; i < ways; ++i) {
    const auto way = static_cast<Way>(i);
    const Trials& trials = of.trials[i];
    const double part = trials.best() / first.best();
    const double clearly = way == Way::pull ? kClearlyPulled : kClearly;
    if (trials.count == 0 || part >= clearly || part >= least) continue;
    found = way;
    least = part;
  }
  return found;
}

std::optional<Staging::Way> Staging::next_trial(Class& counted, std::size_t ways) noexcept {
  const std::uint64_t n = counted.operations++;
  const std::uint64_t turn = n < kFirstTrials ? n % ways : n % kPeriod;
  if (turn >= ways) return {};
  return static_cast<Way>(turn);
}

Staging::Plan Staging::plan(CollectiveOp op, std::uint64_t size_bytes) noexcept {
  if (forced_) return {.hint = *forced_};
  if (size_bytes < kSmallestBytes) return {};
  Class* const own = class_of(op, size_bytes);
  const auto trial = own == nullptr ? std::nullopt : next_trial(*own, kShown);
  // If some only write and others only read, a member would see half of the cost.
  const Class& known = own == nullptr ? *class_of(CollectiveOp::all_reduce, size_bytes) : *own;
  const Way way = trial.value_or(learned(known, kShown, Way::cached));
  return {.hint = way == Way::streaming ? CopyHint::streaming : CopyHint::cached,
          .is_trial = trial.has_value()};
}

Staging::Plan Staging::plan_pooled(std::uint64_t size_bytes, std::uint32_t members) noexcept {
  if (forced_ || size_bytes < kSmallestBytes)
    return {.hint = forced_.value_or(CopyHint::cached), .is_pooled = true, .pulls = true};
  if (size_bytes >= kAlwaysPulledBytes / members) return {.is_pooled = true, .pulls = true};
  Class& own = pooled_[index_of_size(size_bytes)];
  // Counted with all others of the size: for some members it may not be pooled now and then.
  const auto trial = next_trial(*class_of(CollectiveOp::all_reduce, size_bytes), kAll);
  const Way otherwise = size_bytes >= kPulledBytes / members ? Way::pull : Way::cached;
  const Way way = trial.value_or(learned(own, kAll, otherwise));
  // Written all the same if some member's tensor is in no pool.
  const Way shown = way == Way::pull ? learned(own, kShown, Way::cached) : way;
  return {.hint = shown == Way::streaming ? CopyHint::streaming : CopyHint::cached,
          .is_pooled = true,
          .pulls = way == Way::pull,
          .is_trial = trial.has_value()};
}

void Staging::tried(CollectiveOp op, std::uint64_t size_bytes, const Plan& plan,
                    std::uint64_t ns) noexcept {
  Class* const own =
      plan.is_pooled ? &pooled_[index_of_size(size_bytes)] : class_of(op, size_bytes);
  if (own == nullptr) return;
  const Way written = plan.hint == CopyHint::streaming ? Way::streaming : Way::cached;
  Trials& trials = own->trials[static_cast<std::size_t>(plan.pulls ? Way::pull : written)];
  trials.ns_per_byte[trials.count++ % trials.ns_per_byte.size()] =
      static_cast<double>(ns) / static_cast<double>(size_bytes);
}

}  // namespace tendon::v0::detail
