// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>

namespace engine {

/// What is run for a worker: words with a blank between; {rank} and {address} in them are replaced.
struct WorkerCommands {
  std::string usual;                                  ///< empty: others start the workers
  std::map<std::uint32_t, std::string> by_rank = {};  ///< instead of the usual one
};

/// The processes of the workers, where the controller is the one that starts them.
///
/// Owns:    the processes: the destructor ends and reaps them.
/// Threads: safe everywhere.
/// Errors:  start(): system.
/// Blocks:  the destructor, some seconds for each that does not end by itself.
/// Cost:    a process for each rank.
class WorkerProcesses {
 public:
  explicit WorkerProcesses(WorkerCommands commands) : commands_(std::move(commands)) {}
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;
  ~WorkerProcesses();

  /// Starts one that connects to `address`; one of this rank that is there is killed first.
  [[nodiscard]] tendon::Result<void> start(tendon::GlobalRank rank, const std::string& address);

  /// One that hangs; it is among the next reap()'s.
  void kill(tendon::GlobalRank rank);

  struct Exit {
    std::uint32_t rank;
    std::string how;  ///< "exit code 1"
  };
  /// Those that have ended since the last call.
  [[nodiscard]] std::vector<Exit> reap();
  /// The controller ends: waits until they have ended by themselves, then kills them.
  void end(std::chrono::steady_clock::time_point until);

 private:
  WorkerCommands commands_;
  std::mutex mutex_;
  std::map<std::uint32_t, pid_t> running_;
};

}  // namespace engine
