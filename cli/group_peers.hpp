// SPDX-License-Identifier: Apache-2.0
// A group of this process, rank 0, and of the children that it starts for the other ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/group/group.hpp>
#include <tendon/runtime/context.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

#include "cli/process.hpp"

namespace tendon::cli {

/// Owns:    the group, its Context, the children: the destructor kills those that still run.
/// Threads: one.
/// Errors:  those of Group::join and of starting a process.
/// Blocks:  start_group() until all have joined, 30 s at most.
/// Cost:    a process for each rank but the first.
struct GroupPeers {
  Context context;
  std::vector<PeerProcess> processes;  ///< of ranks 1, 2, ...
  Group group;
};
/// The children run `role` with `parameters`; join_as_child() reads those that are added.
[[nodiscard]] Result<GroupPeers> start_group(std::string_view role, std::uint32_t ranks,
                                             const Value::Map& parameters, ContextOptions options);

/// The name that errors use for a rank: the name of its Context.
[[nodiscard]] std::string rank_name(std::uint32_t rank);

/// A child's end.
struct GroupChild {
  Context context;
  Group group;
};
[[nodiscard]] Result<GroupChild> join_as_child(const Value& parameters);

}  // namespace tendon::cli
