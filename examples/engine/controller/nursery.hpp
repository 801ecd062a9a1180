// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <tendon/core/result.hpp>

namespace engine {

/// A process that has imported what workers need and forks one for each command: engine.nursery.
/// Those become children of this process, which takes orphans from then on.
///
/// Owns:    the process: the destructor ends it; workers live on.
/// Threads: safe everywhere; one call at a time is served.
/// Errors:  system, timeout.
/// Blocks:  start(), while the process still imports.
/// Cost:    a process, without the weights.
class Nursery {
 public:
  /// `command`: words with a blank between. The process is there when it returns, not yet ready.
  [[nodiscard]] static tendon::Result<std::unique_ptr<Nursery>> open(const std::string& command);
  Nursery(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
  Nursery(const Nursery&) = delete;
  Nursery& operator=(const Nursery&) = delete;
  ~Nursery();

  /// The process of a worker, a child of this one. After an error the nursery is of no more use.
  [[nodiscard]] tendon::Result<pid_t> start(const std::string& command);
  /// A start() that waits fails at once, and so does each that follows.
  void cancel();

 private:
  [[nodiscard]] tendon::Result<std::string> reply();

  const pid_t pid_;
  const int socket_;
  std::mutex mutex_;
};

}  // namespace engine
