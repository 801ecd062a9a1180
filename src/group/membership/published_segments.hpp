// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tendon/core/error.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
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
  /// The same, or the reason why it will not arrive.
  [[nodiscard]] Result<std::shared_ptr<Segment>> look(std::uint32_t id) const {
    const Lock lock(mutex_);
    if (const auto found = segments_.find(id); found != segments_.end()) return found->second;
    if (const auto failed = failures_.find(id); failed != failures_.end()) return failed->second;
    return std::shared_ptr<Segment>();
  }
  /// Forgets the name; callers of find() keep their share.
  void remove(std::uint32_t id) {
    const Lock lock(mutex_);
    segments_.erase(id);
  }
  /// Notes memory that could not be mapped: it will not arrive again. The first kMostFailures are
  /// known.
  void add_failed(std::uint32_t id, const Error& why) {
    const Lock lock(mutex_);
    if (failures_.size() < kMostFailures) failures_.insert_or_assign(id, why);
  }
  /// The reason why this one will not arrive.
  [[nodiscard]] std::optional<Error> failure(std::uint32_t id) const {
    const Lock lock(mutex_);
    const auto found = failures_.find(id);
    return found == failures_.end() ? std::nullopt : std::optional(found->second);
  }
  [[nodiscard]] bool any_failed() const {
    const Lock lock(mutex_);
    return !failures_.empty();
  }
  static constexpr std::size_t kMostFailures = 1024;

 private:
  mutable Mutex mutex_;
  std::map<std::uint32_t, std::shared_ptr<Segment>> segments_ TENDON_GUARDED_BY(mutex_);
  std::map<std::uint32_t, Error> failures_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
