// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// The place of a member in its group: its number when the group was made, which it keeps as long
/// as the group lives. No place in the mesh, which is another number in a subgroup, and no rank,
/// which is another one once a member is gone: what wants one does not take another.
struct GroupPlace {
  std::uint32_t value = 0;
  friend auto operator<=>(const GroupPlace&, const GroupPlace&) = default;
};

}  // namespace tendon::v0::detail
