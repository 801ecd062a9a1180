// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

namespace tendon {
inline namespace v0 {

/// The number of a process in the whole job. It does not convert to a GroupRank, because a program
/// that mixes the two runs, and sends to the wrong process.
struct GlobalRank {
  std::uint32_t value = 0;
  friend auto operator<=>(const GlobalRank&, const GlobalRank&) = default;
};

/// The number of a member in the present epoch of one group.
struct GroupRank {
  std::uint32_t value = 0;
  friend auto operator<=>(const GroupRank&, const GroupRank&) = default;
};

}  // namespace v0
}  // namespace tendon
