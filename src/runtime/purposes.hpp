// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "runtime/tickets.hpp"
#include "transport/descriptor.hpp"

namespace tendon::v0::detail {

/// Where peers may open pipes without a ticket: on a link whose proofs satisfy what is asked for.
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
    Entrance& known = entrances_[purpose];
    if (known.handler.lock() != nullptr) {
      return Error{ErrorCode::invalid_argument, "context.purposes",
                   "this context serves purpose " + text_of(purpose) + " already"};
    }
    known = std::move(entrance);
    return {};
  }
  void remove(Purpose purpose) {
    const Lock lock(mutex_);
    entrances_.erase(purpose);
  }
  [[nodiscard]] Result<Entrance> find(Purpose purpose) const {
    const Lock lock(mutex_);
    const auto found = entrances_.find(purpose);
    if (found != entrances_.end()) return found->second;
    return Error{ErrorCode::unreachable, "context.purposes",
                 "this context serves no pipes of purpose " + text_of(purpose)};
  }

 private:
  static std::string text_of(Purpose purpose) {
    return std::to_string(static_cast<std::uint32_t>(purpose));
  }

  mutable Mutex mutex_;
  std::map<Purpose, Entrance> entrances_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
