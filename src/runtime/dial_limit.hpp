// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <tendon/core/context_id.hpp>
#include <tendon/core/mutex.hpp>
#include <vector>

namespace tendon::v0::detail {

/// The peers that calls of a Context are dialling, each at most once; see DialPlace.
///
/// Owns:    the ids.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never: a caller without a place asks again after one was released.
/// Cost:    a lock.
class DialLimit {
 public:
  explicit DialLimit(std::size_t most) : most_(most) {}

  /// False: there is no place now, or another caller dials this peer.
  [[nodiscard]] bool begin(const ContextId& peer) {
    const Lock lock(mutex_);
    if (peers_.size() >= most_ || std::ranges::find(peers_, peer) != peers_.end()) return false;
    peers_.push_back(peer);
    return true;
  }
  void end(const ContextId& peer) {
    const Lock lock(mutex_);
    std::erase(peers_, peer);
  }

 private:
  const std::size_t most_;
  Mutex mutex_;
  std::vector<ContextId> peers_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
