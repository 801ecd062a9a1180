// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <tendon/core/rank.hpp>

namespace tendon::v0::detail {

/// The place of a process in the mesh: its rank when it joined. No place in a group and no rank in
/// an epoch, which are other numbers in a subgroup: what wants one does not take another.
struct MeshPlace {
  std::uint32_t value = 0;
  friend auto operator<=>(const MeshPlace&, const MeshPlace&) = default;
};

/// The whole job is the group that a process joins: its rank there is its place for good.
[[nodiscard]] constexpr MeshPlace mesh_place_of(GlobalRank rank) { return {rank.value}; }

}  // namespace tendon::v0::detail
