// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>
#include <utility>
#include <vector>

#include "controller/nursery.hpp"

namespace engine {

/// What is run for a worker: words with a blank between; {rank} and {address} in them are replaced.
struct WorkerCommands {
  std::string usual;                                  ///< empty: others start the workers
  std::map<std::uint32_t, std::string> by_rank = {};  ///< instead of the usual one
  std::string nursery = {};  ///< a Nursery's; empty: each worker is a program of its own
};

/// The processes of the workers, where the controller is the one that starts them.
///
/// Owns:    the processes: the destructor ends and reaps them.
/// Threads: safe everywhere.
/// Errors:  start(): system.
/// Blocks:  start(), until the nursery is ready; the destructor, some seconds for each that does
///          not end by itself.
/// Cost:    a process for each rank, and one for the nursery.
class WorkerProcesses {
 public:
  explicit WorkerProcesses(WorkerCommands commands) : commands_(std::move(commands)) {}
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;
  ~WorkerProcesses();

  /// Starts the nursery, which takes its time.
  [[nodiscard]] tendon::Result<void> prepare();
  /// Starts one that connects to `address`; one of this rank that is there is killed first.
  [[nodiscard]] tendon::Result<void> start(tendon::GlobalRank rank, const std::string& address);

  /// The engine ends: a start() that waits fails, and so does each that follows.
  void start_no_more();

  /// One that hangs; it is among the next reap()'s.
  void kill(tendon::GlobalRank rank);

  struct Exit {
    std::uint32_t rank;
    pid_t pid;
    std::string how;        ///< "exit code 1"
    bool replaced = false;  ///< by start(), which found it there
  };
  /// Those that have ended since the last call.
  [[nodiscard]] std::vector<Exit> reap();
  /// The controller ends: waits until they have ended by themselves, then kills them.
  void end(std::chrono::steady_clock::time_point until);

 private:
  /// Its process: forked where there is a nursery, else a program.
  [[nodiscard]] tendon::Result<pid_t> born(const std::string& command);

  const WorkerCommands commands_;
  std::mutex mutex_;
  std::shared_ptr<Nursery> nursery_;  // one of its own waits in it, without the lock
  std::map<std::uint32_t, pid_t> running_;
  bool ends_ = false;
  std::vector<Exit> replaced_;  // since the last reap()
};

}  // namespace engine
