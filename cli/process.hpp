// SPDX-License-Identifier: Apache-2.0
// The second process of a benchmark: this program again, with a hidden verb.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/tensor/value.hpp>
#include <utility>
#include <vector>

namespace tendon::cli {

/// A child that runs this program again, with the verb kVerb, ROLE and PARAMETERS. The child is
/// executed, never merely forked: a Context does not work in a forked copy, by design.
///
/// Owns:    the child: the destructor kills and reaps it.
/// Threads: one; kill() from any.
/// Errors:  start(): system.
/// Blocks:  wait() until the child ends.
/// Cost:    a process.
class PeerProcess {
 public:
  static constexpr const char* kVerb = "bench-peer";

  /// `by`: a command that executes the words after it in the same process, like `nsenter
  /// --net=...`.
  [[nodiscard]] static Result<PeerProcess> start(std::string_view role, Value::Map parameters,
                                                 std::vector<std::string> by = {});
  PeerProcess(PeerProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  PeerProcess& operator=(PeerProcess&& other) noexcept;
  ~PeerProcess() { end(); }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;
  /// Whether wait() would return at once.
  [[nodiscard]] bool has_ended() const;
  /// Waits for the end; returns the exit code, or 128 + the signal that ended the child.
  int wait();

 private:
  explicit PeerProcess(pid_t pid) : pid_(pid) {}
  void end();
  pid_t pid_ = 0;
};

/// Called in the child: it dies with its parent from now on. `parent` is the pid that the
/// parameters name.
void follow_parent(std::int64_t parent);

/// Pins the calling thread to the `index`-th CPU that it may use; where there are fewer, to none.
void pin_thread(std::size_t index);
/// The number of that CPU; -1 where there are fewer.
[[nodiscard]] int usable_cpu(std::size_t index);
/// CPUs this process may use.
[[nodiscard]] std::size_t usable_cpu_count();

}  // namespace tendon::cli
