// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tendon/core/result.hpp>
#include <vector>

#include "cli/verbs.hpp"
#include "core/fd.hpp"

namespace tendon::cli {

/// The environment of the ranks of one start: where they find each other, and their other
/// variables.
///
/// Owns:    a port that nobody else gets while it lives (MASTER_PORT).
/// Threads: one.
/// Errors:  create(): invalid_argument for an impossible rendezvous, system.
/// Blocks:  never.
/// Cost:    a socket where the ranks are on one host.
class RankEnvironment {
 public:
  /// `run_id` names this run of the command, `restart` counts the starts before this one.
  [[nodiscard]] static Result<RankEnvironment> create(const LaunchOptions& options,
                                                      const std::string& run_id, int restart);
  /// "NAME=value" of each variable; those of this process are kept unless they are set anew.
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
