// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <tendon/core/rank.hpp>

namespace tendon::v0::detail {

/// The place of a process in the mesh: its rank when it joined. It differs from places in a group
/// and ranks in an epoch, which are other numbers in a subgroup. The types do not convert.
struct MeshPlace {
  std::uint32_t value = 0;
  friend auto operator<=>(const MeshPlace&, const MeshPlace&) = default;
};

/// The place of a rank of the whole job, that is, of the group that a process joins.
[[nodiscard]] constexpr MeshPlace mesh_place_of(GlobalRank rank) { return {rank.value}; }

}  // namespace tendon::v0::detail
