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

/// The commands for workers: words separated by blanks, in which {rank} and {address} are replaced.
struct WorkerCommands {
  std::string usual;                                  ///< empty: something else starts the workers
  std::map<std::uint32_t, std::string> by_rank = {};  ///< overrides the usual one
  std::string nursery = {};  ///< of a Nursery; empty: each worker is a separate program
};

/// The processes of the workers that the controller starts.
///
/// Owns:    the processes: the destructor ends and reaps them.
/// Threads: thread-safe.
/// Errors:  start(): system.
/// Blocks:  start(), until the nursery is ready; the destructor, some seconds for each process that
///          does not end by itself.
/// Cost:    a process for each rank, and one for the nursery.
class WorkerProcesses {
 public:
  explicit WorkerProcesses(WorkerCommands commands) : commands_(std::move(commands)) {}
  WorkerProcesses(const WorkerProcesses&) = delete;
  WorkerProcesses& operator=(const WorkerProcesses&) = delete;
  ~WorkerProcesses();

  /// Starts the nursery, which needs some time to become ready.
  [[nodiscard]] tendon::Result<void> prepare();
  /// Starts a worker that connects to `address`; kills an existing one of this rank first.
  [[nodiscard]] tendon::Result<void> start(tendon::GlobalRank rank, const std::string& address);

  /// Makes a waiting start() and all later ones fail, as the engine ends.
  void start_no_more();

  /// Kills a hanging worker; a later reap() returns it.
  void kill(tendon::GlobalRank rank);

  struct Exit {
    std::uint32_t rank;
    pid_t pid;
    std::string how;        ///< "exit code 1"
    bool replaced = false;  ///< start() replaced it
  };
  /// Returns the workers that have ended since the last call.
  [[nodiscard]] std::vector<Exit> reap();
  /// Waits until the workers have ended by themselves, then kills the rest.
  void end(std::chrono::steady_clock::time_point until);

 private:
  /// Makes the process: forked by the nursery if there is one, else a program.
  [[nodiscard]] tendon::Result<pid_t> born(const std::string& command);

  const WorkerCommands commands_;
  std::mutex mutex_;
  std::shared_ptr<Nursery> nursery_;  // shared, because calls wait in it without the lock
  std::map<std::uint32_t, pid_t> running_;
  bool ends_ = false;
  std::vector<Exit> replaced_;  // since the last reap()
};

}  // namespace engine
