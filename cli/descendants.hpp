// SPDX-License-Identifier: Apache-2.0
// The processes below this one, those included whose own parents have ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon::cli {

/// From now on a process below this one that loses its parent becomes a child of this one
/// (PR_SET_CHILD_SUBREAPER), so that none is out of reach.
[[nodiscard]] Result<void> adopt_orphans();

struct ChildProcess {
  enum class State : std::uint8_t { alive, ended };  ///< ended: waits to be reaped
  pid_t pid;
  State state;
};
/// The children of this process, as /proc shows them; none where there is no /proc.
[[nodiscard]] std::vector<ChildProcess> child_processes();

/// Kills and reaps everything below this process, adopted processes too. Waits until nothing is
/// left but what belongs to another user.
void end_descendants();

}  // namespace tendon::cli
