// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <tendon/core/context_id.hpp>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// Limits how often each asker is served in a second. An asker is only a claim of a context id. The
/// limit thus bounds an honest asker that repeats itself, and a stranger that keeps one name; the
/// total cost has limits of its own.
///
/// Owns:    the askers of the last second, at most kMostAskers; a new one replaces the oldest.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a step in a tree; a walk over it if there are kMostAskers.
class AskerRates {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit AskerRates(std::uint32_t most) : most_(most) {}

  /// Counts the request. False: the asker has used up its second.
  [[nodiscard]] bool may_serve(const ContextId& asker, Time now) {
    const Lock lock(mutex_);
    const auto known = askers_.find(asker);
    if (known != askers_.end() && now - known->second.since < kWithin)
      return ++known->second.count <= most_;
    if (known == askers_.end() && askers_.size() >= kMostAskers) forget(now);
    askers_.insert_or_assign(asker, Served{now, 1});
    return true;
  }

  static constexpr std::chrono::seconds kWithin{1};
  static constexpr std::size_t kMostAskers = 1024;

 private:
  struct Served {
    Time since;
    std::uint32_t count = 0;
  };
  void forget(Time now) TENDON_REQUIRES(mutex_) {
    std::erase_if(askers_, [&](const auto& one) { return now - one.second.since >= kWithin; });
    if (askers_.size() < kMostAskers) return;
    auto oldest = askers_.begin();
    for (auto one = askers_.begin(); one != askers_.end(); ++one)
      if (one->second.since < oldest->second.since) oldest = one;
    askers_.erase(oldest);
  }

  const std::uint32_t most_;
  Mutex mutex_;
  std::map<ContextId, Served> askers_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
