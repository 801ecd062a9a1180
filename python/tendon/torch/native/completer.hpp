// SPDX-License-Identifier: Apache-2.0
// Threads that run the callbacks of futures.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace tendon::torch_extension {

/// Completes futures, one at a time, in the order in which their works ended.
///
/// It does not use Tendon's pump thread. A callback may wait for an operation that it starts, as
/// torch's hooks for DDP do, and the pump thread reports the end of that operation. While a
/// callback waits, another thread takes the turn: at once if it waits for one of our works or takes
/// its future, else after kPatience.
///
/// Threads: one more than the callbacks that wait at one time. They live as long as the process.
class Completer {
 public:
  using Task = std::function<void()>;

  static Completer& get() {
    static const int kAtFork = pthread_atfork(nullptr, nullptr, [] {
      // The child has none of its threads, and the lock may have been held.
      current() = new Completer;
      turn_of_this_thread_ = 0;
    });
    (void)kAtFork;
    return *current();
  }

  /// Called before the interpreter ends, because threads that take the GIL must not outlive it.
  /// Waits for the running callback. Later futures are completed by their callers.
  static void finish() {
    Completer& self = get();
    std::unique_lock lock(self.mutex_);
    self.is_finished_ = true;
    self.ended_.wait_for(lock, kLastPatience,
                         [&] { return self.tasks_.empty() && self.turn_ == 0; });
  }

  /// Callable on any thread. Waits only if no thread can be started.
  void add(Task task) {
    {
      const std::lock_guard lock(mutex_);
      if (!is_finished_ && (idle_ != 0 || start())) {
        tasks_.push_back(std::move(task));
        changed_.notify_one();
        return;
      }
    }
    task();
  }

  /// Tells that the caller will wait for something that another callback may have to do first.
  static void about_to_wait() {
    if (turn_of_this_thread_ == 0) return;
    Completer& self = get();
    const std::lock_guard lock(self.mutex_);
    self.end_turn();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPatience{20};
  static constexpr std::chrono::seconds kLastPatience{5};

  /// Never destroyed: its threads live as long as the process.
  static Completer*& current() {
    static Completer* completer = new Completer;
    return completer;
  }

  // Callers of these two hold the lock.

  /// False if the system has no thread to spare.
  bool start() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    // Signals belong to the threads of the program.
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = true;
    try {
      std::thread([this] { run(); }).detach();
      ++idle_;
    } catch (const std::system_error&) {
      started = false;
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
  }

  void end_turn() {
    if (turn_ == turn_of_this_thread_) {
      turn_ = 0;
      if (!tasks_.empty()) changed_.notify_one();
      ended_.notify_all();
    }
    turn_of_this_thread_ = 0;
  }

  /// The thread counts as idle when it starts.
  void run() {
    (void)pthread_setname_np(pthread_self(), "tendon-future");
    std::unique_lock lock(mutex_);
    while (true) {
      wait_for_turn(lock);
      Task task = std::move(tasks_.front());
      tasks_.pop_front();
      --idle_;
      turn_ = turn_of_this_thread_ = ++last_turn_;
      since_ = Clock::now();
      // Starts another thread for the turn, in case this task blocks.
      if (idle_ == 0) (void)start();
      if (!tasks_.empty()) changed_.notify_one();
      lock.unlock();
      task();
      task = nullptr;  // releases its tensors, whose end may take the GIL
      lock.lock();
      end_turn();
      ++idle_;
    }
  }

  void wait_for_turn(std::unique_lock<std::mutex>& lock) {
    while (tasks_.empty() || turn_ != 0) {
      if (tasks_.empty()) {
        changed_.wait(lock);
      } else if (changed_.wait_until(lock, since_ + kPatience) == std::cv_status::timeout &&
                 Clock::now() >= since_ + kPatience && !tasks_.empty()) {
        return;  // the other thread continues, and this one takes the turn
      }
    }
  }

  static inline thread_local std::uint64_t turn_of_this_thread_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;  // signals a task, or the turn
  std::condition_variable ended_;
  // Guarded by mutex_.
  std::deque<Task> tasks_;
  std::uint64_t turn_ = 0;  // 0: no thread has it
  std::uint64_t last_turn_ = 0;
  Clock::time_point since_;  // the start of the last turn
  int idle_ = 0;
  bool is_finished_ = false;
};

}  // namespace tendon::torch_extension
