// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "core/fd.hpp"
#include "core/thread.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// The two places where the nodes of one domain, host and user meet: "x.zenoh", and "x.zenoh2"
/// while the process that serves the first one is stopped. There are no others.
struct StarPlaces {
  std::string first;
  std::string second;

  [[nodiscard]] static StarPlaces at(const std::string& path) { return {path, path + '2'}; }
  /// For clients, the second one first: if it is not served, the kernel says so at once.
  [[nodiscard]] std::vector<std::string> endpoints() const;
};

/// Serves one of the places where the nodes of one domain, host and user meet, when nobody else
/// does.
///
///   idle -> wanted     look_at(down): nobody serves, as far as its process can see
///   wanted -> idle     look_at(up): somebody does
///   wanted -> serving  it has a lock, and its session listens. It stays so until its end
///
/// A lock on a file says which process serves: the kernel releases it when the process dies. A
/// process that has the lock of the first place and has answered nobody for kSilent is stopped. The
/// second place, with a lock of its own, is served then. Its session dials the first one all the
/// time, so that both are one network once that process resumes.
///
/// Owns:    the lock and the session, while it serves; a thread.
/// Threads: thread-safe.
/// Errors:  start(): resource_exhausted without a thread. Others are logged, and tried again.
/// Blocks:  the destructor, while a session is opened or closed: two seconds at most.
/// Cost:    while it is wanted, one try of the lock in kRetry. A session when it serves.
class StarServer {
 public:
  /// The lock of a place has its name with ".serves" after it. Begins as wanted.
  [[nodiscard]] static Result<std::shared_ptr<StarServer>> start(StarPlaces places);
  explicit StarServer(StarPlaces places)
      : places_(std::move(places)), wanted_since_(Deadline::Clock::now()) {}
  StarServer(const StarServer&) = delete;
  StarServer& operator=(const StarServer&) = delete;
  ~StarServer();

  /// Handles a changed or first state of a client of the places. States that several threads see at
  /// once count in the order in which they see them.
  void look_at(const ZenohPort& client) TENDON_EXCLUDES(mutex_);

  /// A process that has the lock is stopped if it answered nobody for this long.
  static constexpr std::chrono::milliseconds kSilent{1000};
  /// After so long a silence of the serving process, its clients look for another: the most that a
  /// stopped one costs them.
  static constexpr std::chrono::milliseconds kLease{2000};
  /// The time that a client allows each place for its handshake.
  static constexpr std::chrono::milliseconds kTry{500};
  /// Clients, and the server of the second place, try again at least this often.
  static constexpr std::chrono::milliseconds kLastRetry{500};

 private:
  enum class State : std::uint8_t { idle, wanted, serving, ending };

  void work(std::chrono::milliseconds pause) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::chrono::milliseconds serve() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<std::unique_ptr<ZenohPort>> try_to_serve() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Result<std::unique_ptr<ZenohPort>> try_to_serve_second();
  [[nodiscard]] bool is_silent() TENDON_EXCLUDES(mutex_);

  static constexpr std::chrono::milliseconds kRetry{50};
  static constexpr std::chrono::milliseconds kRetryOfError{1000};

  const StarPlaces places_;
  // start() uses them, then the thread.
  OwnedFd first_lock_;
  OwnedFd second_lock_;
  std::unique_ptr<ZenohPort> session_;
  std::string last_failure_;
  Mutex mutex_;
  CondVar changed_;
  State state_ TENDON_GUARDED_BY(mutex_) = State::wanted;
  Deadline::Clock::time_point wanted_since_ TENDON_GUARDED_BY(mutex_);
  Thread thread_;
};

}  // namespace tendon::v0::detail
