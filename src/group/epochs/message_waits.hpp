// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>
#include <string_view>
#include <tendon/core/mutex.hpp>
#include <tendon/core/rank.hpp>
#include <vector>

namespace tendon::v0::detail {

/// Threads that wait for a message from or to another member, for Group::status().
///
/// Owns:    nothing: each wait is on its thread's stack.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock for each wait, at its beginning and at its end.
class MessageWaits {
 public:
  using Clock = std::chrono::steady_clock;

  struct Wait {
    std::string_view what;          ///< "recv"
    std::optional<GroupRank> peer;  ///< nullopt: anybody
    Clock::time_point since;
  };
  /// Marks that the calling thread waits, for as long as it lives.
  class Here {
   public:
    /// `what` is a literal.
    Here(MessageWaits& all, std::string_view what, std::optional<GroupRank> peer)
        : all_(all), wait_{what, peer, Clock::now()} {
      const Lock lock(all_.mutex_);
      all_.here_.push_back(this);
    }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;
    ~Here() {
      const Lock lock(all_.mutex_);
      std::erase(all_.here_, this);
    }

   private:
    friend class MessageWaits;
    MessageWaits& all_;
    const Wait wait_;
  };

  /// The earliest wait.
  [[nodiscard]] std::optional<Wait> first() const {
    const Lock lock(mutex_);
    return here_.empty() ? std::nullopt : std::optional(here_.front()->wait_);
  }

 private:
  mutable Mutex mutex_;
  std::vector<const Here*> here_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
