// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <utility>

#include "memory/segment.hpp"

namespace tendon::v0::detail {

/// Memory of one peer that this process may read, by the peer's names for it.
///
/// Owns:    a share of each mapping.
/// Threads: thread-safe; its lock is the innermost one.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock and a look-up.
class PublishedSegments {
 public:
  void add(std::uint32_t id, std::shared_ptr<Segment> segment) {
    const Lock lock(mutex_);
    segments_.insert_or_assign(id, std::move(segment));
  }
  /// Null while it has not arrived.
  [[nodiscard]] std::shared_ptr<Segment> find(std::uint32_t id) const {
    const Lock lock(mutex_);
    const auto found = segments_.find(id);
    return found == segments_.end() ? nullptr : found->second;
  }
  /// Its name is not needed any more; a caller of find() keeps what it has.
  void remove(std::uint32_t id) {
    const Lock lock(mutex_);
    segments_.erase(id);
  }

 private:
  mutable Mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<Segment>> segments_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
