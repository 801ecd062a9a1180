// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <thread>
#include <vector>

#include "runtime/backoff.hpp"

namespace tendon::v0::detail {

/// Tries again and again to reach what is wanted, with growing pauses, on threads of its own: to
/// dial is to wait.
///
///   want() -> waiting -> running -> waiting   it failed: after a pause that grows up to 5 s
///                                -> settled   it succeeded
///             settled -> waiting              again(): after a pause, which begins anew only if
///                                             the success has lasted
///
/// Attempts for one peer run one after the other: one that announces a thousand things and does not
/// answer takes one thread.
///
/// Owns:    the attempts, and at most kMostThreads threads, made when they are needed.
/// Threads: thread-safe. Attempts run without a lock, that of one key never twice at once.
/// Errors:  those of attempts are theirs.
/// Blocks:  drop_all(), stop() and the destructor, for an attempt that runs: kPatience at most.
/// Cost:    a look over what is wanted for each attempt.
class Dialler {
 public:
  /// One attempt: true when there is nothing left to do.
  using Attempt = std::function<bool(Deadline)>;

  Dialler() = default;
  Dialler(const Dialler&) = delete;
  Dialler& operator=(const Dialler&) = delete;
  ~Dialler() { stop(); }

  /// Replaces nothing: what is wanted already stays as it is. `peer`: whom it is to reach.
  void want(const std::string& key, const std::string& peer, Attempt attempt);
  /// What had succeeded has to be done again.
  void again(const std::string& key);
  /// No further attempt begins.
  void drop(const std::string& key);
  /// The same for all keys that begin with `prefix`; none of their attempts runs when it returns.
  void drop_all(std::string_view prefix);
  /// Drops everything, and ends the threads for good.
  void stop();

  static constexpr std::size_t kMostThreads = 16;
  static constexpr std::chrono::milliseconds kPatience{1000};

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { waiting, running, settled };
  struct Target {
    std::string key;
    std::string peer;
    Attempt attempt;
    Backoff backoff;
    Clock::time_point due;
    Clock::time_point settled_at{};
    State state = State::waiting;
  };
  using Targets = std::map<std::string, std::shared_ptr<Target>, std::less<>>;

  [[nodiscard]] static Backoff fresh_backoff();
  /// The next one that waits for its time alone.
  [[nodiscard]] std::shared_ptr<Target> next_waiting() TENDON_REQUIRES(mutex_);
  void need_thread() TENDON_REQUIRES(mutex_);
  void work();
  void run(const std::shared_ptr<Target>& target) TENDON_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  Targets targets_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Target>> running_ TENDON_GUARDED_BY(mutex_);  // dropped ones too
  std::vector<std::thread> threads_ TENDON_GUARDED_BY(mutex_);
  std::size_t idle_count_ TENDON_GUARDED_BY(mutex_) = 0;
  bool ending_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
