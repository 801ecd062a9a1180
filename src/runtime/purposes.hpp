// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "runtime/tickets.hpp"
#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// The purposes for which peers may open pipes without a ticket, on a link with the required
/// proofs.
///
/// Owns:    no handler.
/// Threads: thread-safe.
/// Errors:  add(): invalid_argument for a purpose that is served already. find(): unreachable.
/// Blocks:  never.
/// Cost:    a lock and a look-up.
class Purposes {
 public:
  [[nodiscard]] Result<void> add(Purpose purpose, Entrance entrance) {
    const Lock lock(mutex_);
    Served& known = entrances_[purpose];
    if (known.entrance.handler.lock() != nullptr) {
      return Error{ErrorCode::invalid_argument, "context.purposes",
                   "this context serves purpose " + text_of(purpose) + " already"};
    }
    const OpenHandler* handler = entrance.handler.lock().get();
    known = {handler, std::move(entrance)};
    return {};
  }
  /// Removes the entrance, unless another handler has replaced this one.
  void remove(Purpose purpose, const OpenHandler* handler) {
    const Lock lock(mutex_);
    const auto found = entrances_.find(purpose);
    if (found != entrances_.end() && found->second.of == handler) entrances_.erase(found);
  }
  [[nodiscard]] Result<Entrance> find(Purpose purpose) const {
    const Lock lock(mutex_);
    const auto found = entrances_.find(purpose);
    if (found != entrances_.end()) return found->second.entrance;
    return Error{ErrorCode::unreachable, "context.purposes",
                 "this context serves no pipes of purpose " + text_of(purpose)};
  }

 private:
  static std::string text_of(Purpose purpose) {
    return std::to_string(static_cast<std::uint32_t>(purpose));
  }

  mutable Mutex mutex_;
  struct Served {
    const OpenHandler* of = nullptr;  // compared, never dereferenced
    Entrance entrance;
  };
  std::map<Purpose, Served> entrances_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
