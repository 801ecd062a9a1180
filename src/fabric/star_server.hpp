// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <thread>

#include "core/fd.hpp"
#include "fabric/zenoh_port.hpp"

namespace tendon::v0::detail {

/// Serves the place where the nodes of one domain, host and user meet, when nobody else does.
///
///   idle -> wanted     set_state(down): nobody serves, as far as its process can see
///   wanted -> idle     set_state(up): somebody does
///   wanted -> serving  it has the lock, and its session listens. It stays so until its end
///
/// A lock on a file says which process serves: the kernel gives it back when the process dies.
///
/// Owns:    the lock and the session, while it serves; a thread.
/// Threads: thread-safe.
/// Errors:  logged, and tried again.
/// Blocks:  the destructor, while a session is opened or closed: two seconds at most.
/// Cost:    while it is wanted, one try of the lock in kRetry. A session when it serves.
class StarServer {
 public:
  /// `path`: of the socket; the lock has the same with ".serves" behind it. Begins as wanted.
  explicit StarServer(std::string path);
  StarServer(const StarServer&) = delete;
  StarServer& operator=(const StarServer&) = delete;
  ~StarServer();

  /// The state of a client of the place has changed, or is looked at for the first time. What
  /// several threads see at once counts in the order in which they see it.
  void look_at(const ZenohPort& client) TENDON_EXCLUDES(mutex_);

 private:
  enum class State : std::uint8_t { idle, wanted, serving, ending };

  void work(std::chrono::milliseconds pause) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::chrono::milliseconds serve() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<std::unique_ptr<ZenohPort>> try_to_serve();

  static constexpr std::chrono::milliseconds kRetry{50};
  static constexpr std::chrono::milliseconds kRetryOfError{1000};

  const std::string path_;
  // The constructor uses them, then the thread.
  OwnedFd lock_;
  std::unique_ptr<ZenohPort> session_;
  std::string last_failure_;
  Mutex mutex_;
  CondVar changed_;
  State state_ TENDON_GUARDED_BY(mutex_) = State::wanted;
  std::thread thread_;
};

}  // namespace tendon::v0::detail
