// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

#include "runtime/context_clients.hpp"

namespace tendon::v0::detail {

/// What takes pipes in a Context, listeners and the meshes of groups, to be told of lost links and
/// of its end.
///
/// Owns:    none of them.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a list of those that live, for each question.
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
  /// Puts off the end of this share, which may be the last one and needs locks that the caller
  /// holds. True: release() is due, which was not due before.
  [[nodiscard]] bool keep(std::shared_ptr<OpenHandler> handler) {
    const Lock lock(mutex_);
    const bool first = kept_.empty();
    // Peers decide how often a handler is asked: one share of each is enough.
    if (std::ranges::find(kept_, handler) == kept_.end())
      kept_.push_back(std::move(handler));
    else
      handler.reset();  // under the lock, so that it is not the last one
    return first;
  }
  void release() {
    List kept;
    const Lock lock(mutex_);
    kept.swap(kept_);  // they end behind the lock
  }
  /// The same; none is told of anything afterwards.
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
