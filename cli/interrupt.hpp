// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"
#include "core/thread.hpp"

namespace tendon::cli {

/// Turns Ctrl-C and SIGTERM into a request to end cleanly; a second signal ends the process at
/// once.
///
/// Owns:    one thread that waits for the signals, which are blocked everywhere else.
/// Threads: requested() anywhere; the rest from the thread that made it.
/// Errors:  start(): system, too_many_open_files, resource_exhausted.
/// Blocks:  never.
/// Cost:    one thread.
///
/// Make it before any other thread exists: threads inherit which signals are blocked.
class Interrupt {
 public:
  Interrupt() = default;
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();
  [[nodiscard]] Result<void> start();

  [[nodiscard]] bool requested() const noexcept { return signal_number() != 0; }
  /// 128 + the signal, as a shell reports it.
  [[nodiscard]] int exit_code() const noexcept { return 128 + signal_number(); }
  [[nodiscard]] Error error(std::string_view where) const;

  /// While it lives, a signal calls `action` on the watching thread (at once if one has arrived).
  class Guard {
   public:
    Guard(Interrupt& interrupt, std::function<void()> action);
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    ~Guard();

   private:
    Interrupt& interrupt_;
  };

 private:
  [[nodiscard]] int signal_number() const noexcept {
    return signal_number_.load(std::memory_order_acquire);
  }
  void watch();

  std::atomic<int> signal_number_{0};
  detail::Mutex mutex_;
  std::function<void()> action_ TENDON_GUARDED_BY(mutex_);
  detail::OwnedFd signals_;
  detail::OwnedFd stop_;
  detail::Thread thread_;
};

}  // namespace tendon::cli
