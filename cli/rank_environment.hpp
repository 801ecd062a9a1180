// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/result.hpp>
#include <vector>

#include "cli/verbs.hpp"
#include "core/fd.hpp"

namespace tendon::cli {

/// Where the ranks of one start find each other, and what else their environment says.
///
/// Owns:    a port that nobody else is given while it lives (MASTER_PORT).
/// Threads: one.
/// Errors:  create(): invalid_argument for a rendezvous that cannot be, system.
/// Blocks:  never.
/// Cost:    a socket where the ranks are on one host.
class RankEnvironment {
 public:
  /// `run_id` names this run of the command, `restart` counts the starts before this one.
  [[nodiscard]] static Result<RankEnvironment> create(const LaunchOptions& options,
                                                      const std::string& run_id, int restart);
  /// "NAME=value", all of this process's own that are not said anew.
  [[nodiscard]] std::vector<std::string> of(int local_rank) const;

 private:
  RankEnvironment() = default;

  int local_count_ = 1;
  int node_count_ = 1;
  int node_rank_ = 0;
  std::vector<std::string> common_;
  detail::OwnedFd master_port_;
};

}  // namespace tendon::cli
