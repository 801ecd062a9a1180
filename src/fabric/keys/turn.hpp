// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <tendon/core/deadline.hpp>

namespace tendon::v0::detail {

/// How long the thread that makes progress for a Context reads the announcements of others before
/// it serves everybody else. Used once for words on pipes, and once for their consequences in a
/// node: 2 ms together.
class DiscoveryTurn {
 public:
  static constexpr std::chrono::milliseconds kMost{1};
  /// Changes between two looks at the clock.
  static constexpr std::size_t kAtOnce = 32;

  /// A turn without end, for a caller that waits for the whole picture.
  [[nodiscard]] static DiscoveryTurn whole() { return DiscoveryTurn(Deadline::never()); }
  [[nodiscard]] static DiscoveryTurn begin() { return DiscoveryTurn(Deadline(kMost)); }
  [[nodiscard]] bool is_over() const { return until_.has_passed(); }

 private:
  explicit DiscoveryTurn(Deadline until) : until_(until) {}

  Deadline until_;
};

}  // namespace tendon::v0::detail
