// SPDX-License-Identifier: Apache-2.0
// The processes below this one, including those whose own parents have ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon::cli {

/// Makes this process the new parent of each process below it that loses its parent
/// (PR_SET_CHILD_SUBREAPER), so that none is out of reach.
[[nodiscard]] Result<void> adopt_orphans();

struct ChildProcess {
  enum class State : std::uint8_t { alive, ended };  ///< ended: waits to be reaped
  pid_t pid;
  State state;
};
/// The children of this process, as /proc lists them; none where there is no /proc.
[[nodiscard]] std::vector<ChildProcess> child_processes();

/// Kills and reaps everything below this process, adopted processes too. Waits until only processes
/// of other users are left.
void end_descendants();

}  // namespace tendon::cli
