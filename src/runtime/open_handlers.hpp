// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

#include "runtime/context_clients.hpp"

namespace tendon::v0::detail {

/// The handlers that take pipes in a Context: listeners and the meshes of groups. The Context tells
/// them of lost links and of its end.
///
/// Owns:    none of them.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a list of the live handlers for each query.
class OpenHandlers {
 public:
  using List = std::vector<std::shared_ptr<OpenHandler>>;

  void add(std::weak_ptr<OpenHandler> handler) {
    const Lock lock(mutex_);
    std::erase_if(handlers_, [](const auto& known) { return known.expired(); });
    handlers_.push_back(std::move(handler));
  }
  [[nodiscard]] List alive() const {
    const Lock lock(mutex_);
    return alive_of(handlers_);
  }
  /// Delays the end of this share, which may be the last and may need locks that the caller holds.
  /// True: the caller must now schedule release().
  [[nodiscard]] bool keep(std::shared_ptr<OpenHandler> handler) {
    const Lock lock(mutex_);
    const bool first = kept_.empty();
    // Peers decide how often a handler is called, so one share of each is kept.
    if (std::ranges::find(kept_, handler) == kept_.end())
      kept_.push_back(std::move(handler));
    else
      handler.reset();  // under the lock, so that it is not the last one
    return first;
  }
  void release() {
    List kept;
    const Lock lock(mutex_);
    kept.swap(kept_);  // they end after the lock is released
  }
  /// Returns the live handlers and removes all; none is called afterwards.
  [[nodiscard]] List take() {
    const Lock lock(mutex_);
    return alive_of(std::exchange(handlers_, {}));
  }

 private:
  static List alive_of(const std::vector<std::weak_ptr<OpenHandler>>& handlers) {
    List alive;
    for (const auto& handler : handlers)
      if (auto shared = handler.lock()) alive.push_back(std::move(shared));
    return alive;
  }

  mutable Mutex mutex_;
  std::vector<std::weak_ptr<OpenHandler>> handlers_ TENDON_GUARDED_BY(mutex_);
  List kept_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
