// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace tendon::v0::detail {

/// The limit of the messages that one link hands over before other links have their turn: a flood
/// of small messages delays nobody.
///
/// Owns:    nothing.
/// Threads: one at a time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a count; a look at the clock for each kBetweenLooks messages.
class TurnBudget {
 public:
  static constexpr std::uint32_t kMostMessages = 4096;
  static constexpr std::chrono::milliseconds kMostTime{2};
  static constexpr std::uint32_t kBetweenLooks = 64;

  void begin() noexcept {
    left_ = kMostMessages;
    has_begun_ = false;
  }
  /// Counts one more message. `now()` is called once for kBetweenLooks messages.
  template <class Now>
  void note(Now now) {
    if (--left_ % kBetweenLooks != 0) return;
    const std::chrono::steady_clock::time_point looked = now();
    if (!has_begun_) {
      has_begun_ = true;
      first_look_ = looked;
    } else if (looked - first_look_ >= kMostTime) {
      left_ = 0;
    }
  }
  [[nodiscard]] bool is_spent() const noexcept { return left_ == 0; }

 private:
  std::uint32_t left_ = kMostMessages;
  bool has_begun_ = false;
  std::chrono::steady_clock::time_point first_look_ = {};
};

}  // namespace tendon::v0::detail
