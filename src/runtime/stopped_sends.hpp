// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <unordered_map>
#include <utility>

#include "transport/lent_sample.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The sends of a Context over sockets that outlasted the call that began them. Stalled sends may
/// hold a limited part of the publish pool; beyond it they are taken back, so readers that stop
/// leave the rest to all others.
///
/// Owns:    weak shares.
/// Threads: thread-safe. No lock of a link is held for take_back().
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock; take_back() is a load, and a look at each when together they hold too much.
class StoppedSends {
 public:
  using Clock = LentSample::Clock;

  explicit StoppedSends(std::shared_ptr<PublishPool> pool) : pool_(std::move(pool)) {}

  void add(const std::shared_ptr<Link>& link, const std::shared_ptr<LentSample>& sample);
  void remove(const LentSample& sample);
  /// Takes back the sends that have not moved for kAfter, the longest first, while all sends over
  /// sockets hold more than most_bytes(). Returns how many.
  std::size_t take_back() { return hold_too_much() ? take_back(Clock::now()) : 0; }
  std::size_t take_back(Clock::time_point now);
  [[nodiscard]] std::uint64_t most_bytes() const noexcept { return pool_->cap_bytes() / kPart; }
  [[nodiscard]] std::size_t count() const {
    const Lock lock(mutex_);
    return sends_.size();
  }

  /// A send that has not moved for this long is stopped.
  static constexpr std::chrono::milliseconds kAfter{100};
  /// Stopped sends together hold at most this fraction of publish_bytes.
  static constexpr std::uint64_t kPart = 4;

 private:
  struct Send {
    std::weak_ptr<Link> link;
    std::weak_ptr<LentSample> sample;
  };

  [[nodiscard]] bool hold_too_much() const noexcept {
    return pool_->sending_bytes() > most_bytes();
  }

  const std::shared_ptr<PublishPool> pool_;
  mutable Mutex mutex_;
  std::unordered_map<const LentSample*, Send> sends_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
