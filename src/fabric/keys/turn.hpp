// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <tendon/core/deadline.hpp>

namespace tendon::v0::detail {

/// How long the thread that makes progress for a Context takes in what others announce before it
/// serves everybody else: once for what came on pipes, and once for what a node makes of it. Both
/// together are 2 ms.
class DiscoveryTurn {
 public:
  static constexpr std::chrono::milliseconds kMost{1};
  /// Changes between two looks at the clock.
  static constexpr std::size_t kAtOnce = 32;

  /// Goes on for as long as it takes: for a caller that waits for the whole picture.
  [[nodiscard]] static DiscoveryTurn whole() { return DiscoveryTurn(Deadline::never()); }
  [[nodiscard]] static DiscoveryTurn begin() { return DiscoveryTurn(Deadline(kMost)); }
  [[nodiscard]] bool is_over() const { return until_.has_passed(); }

 private:
  explicit DiscoveryTurn(Deadline until) : until_(until) {}

  Deadline until_;
};

}  // namespace tendon::v0::detail
