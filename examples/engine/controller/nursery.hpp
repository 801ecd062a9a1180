// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <string>
#include <tendon/core/result.hpp>

namespace engine {

/// A process that has imported the workers' modules and forks a worker for each command:
/// engine.nursery. The workers become children of this process, which adopts orphans from then on.
///
/// Owns:    the process: the destructor ends it; its workers live on.
/// Threads: thread-safe; it runs one call at a time.
/// Errors:  system, timeout.
/// Blocks:  start(), while the process still imports.
/// Cost:    a process, without the weights.
class Nursery {
 public:
  /// `command`: words separated by blanks. On return the process exists but is not yet ready.
  [[nodiscard]] static tendon::Result<std::unique_ptr<Nursery>> open(const std::string& command);
  Nursery(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
  Nursery(const Nursery&) = delete;
  Nursery& operator=(const Nursery&) = delete;
  ~Nursery();

  /// Starts a worker, a child process of this one. After an error the nursery is unusable.
  [[nodiscard]] tendon::Result<pid_t> start(const std::string& command);
  /// Makes a waiting start() and all later ones fail at once.
  void cancel();

 private:
  [[nodiscard]] tendon::Result<std::string> reply();

  const pid_t pid_;
  const int socket_;
  std::mutex mutex_;
};

}  // namespace engine
