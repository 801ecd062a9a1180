// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "group/operands/fingerprint.hpp"

namespace tendon::v0::detail {

/// The properties of a collective, for code that treats several alike.
struct Collective {
  CollectiveOp op;
  std::string_view name;
  bool has_root;      ///< one member sends, or receives, what the others do not
  bool blocks_in;     ///< the input has a block for each member
  bool blocks_out;    ///< the output has a block for each member
  bool is_alike;      ///< tensors are of one shape on all members
  bool sizes_differ;  ///< legally, block by block: each piece names its block
  bool reduces;       ///< members' elements are combined
};

/// A row for each, at its number - 1; x: true.
inline constexpr std::array<Collective, 10> kCollectives = [] {
  constexpr bool x = true;   // NOLINT(readability-identifier-naming): the marks of a table
  constexpr bool o = false;  // NOLINT(readability-identifier-naming)
  return std::array<Collective, 10>{{
      // clang-format off
      // root, blocks in, blocks out, alike, sizes differ, reduces
      {CollectiveOp::barrier,           "barrier",           o, o, o, o, o, o},
      {CollectiveOp::broadcast,         "broadcast",         x, o, o, x, o, o},
      {CollectiveOp::all_reduce,        "all_reduce",        o, o, o, x, o, x},
      {CollectiveOp::reduce,            "reduce",            x, o, o, x, o, x},
      {CollectiveOp::all_gather,        "all_gather",        o, o, x, o, o, o},
      {CollectiveOp::gather,            "gather",            x, o, x, o, x, o},
      {CollectiveOp::scatter,           "scatter",           x, x, o, o, x, o},
      {CollectiveOp::reduce_scatter,    "reduce_scatter",    o, x, o, o, o, x},
      {CollectiveOp::all_to_all,        "all_to_all",        o, x, x, o, x, o},
      {CollectiveOp::monitored_barrier, "monitored_barrier", o, o, o, o, o, o},
      // clang-format on
  }};
}();
static_assert(std::ranges::all_of(kCollectives, [](const Collective& row) {
  return &row == &kCollectives[static_cast<std::size_t>(row.op) - 1];
}));

/// Null for a number that names none.
[[nodiscard]] constexpr const Collective* find_collective(CollectiveOp op) {
  const auto number = static_cast<std::size_t>(op);
  return number == 0 || number > kCollectives.size() ? nullptr : &kCollectives[number - 1];
}
/// Precondition: this process made `op`.
[[nodiscard]] constexpr const Collective& collective(CollectiveOp op) {
  return *find_collective(op);
}

}  // namespace tendon::v0::detail
