// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// The place of a member in its group: its number when the group was made, for as long as the group
/// lives. It differs from the place in the mesh, which is another number in a subgroup, and from
/// the rank, which changes when a member leaves. The types do not convert.
struct GroupPlace {
  std::uint32_t value = 0;
  friend auto operator<=>(const GroupPlace&, const GroupPlace&) = default;
};

}  // namespace tendon::v0::detail
