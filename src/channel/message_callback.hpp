// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <thread>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// What the owner of a channel is called with when messages have arrived and no caller waits for
/// them. It takes all that there are: it hears once of many.
///
/// Owns:    the function.
/// Threads: thread-safe; its lock comes after a link's receive lock. The function runs on the
///          service thread or inside progress(), as ContextCore::schedule() says, under no lock,
///          and never while it runs already.
/// Errors:  what it throws is logged.
/// Blocks:  end(), while the function runs.
/// Cost:    a lock for a message, and a wake-up for the first one that was not told.
class MessageCallback : public std::enable_shared_from_this<MessageCallback> {
 public:
  /// The Context outlives the channel.
  MessageCallback(ContextCore& context, std::function<void()> callback)
      : context_(context), callback_(std::move(callback)) {}

  /// While it lives a caller waits, and takes what comes. What it leaves is told when it goes.
  class Caller {
   public:
    explicit Caller(MessageCallback& callback) : callback_(callback) { callback.count_caller(1); }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;
    ~Caller() { callback_.count_caller(-1); }

   private:
    MessageCallback& callback_;
  };

  // What its receiver says
  /// There is a message.
  void came();
  /// There is none any more.
  void taken_all();

  /// The channel is over: the function does not run any more. Waits for it if it runs on another
  /// thread, so that no lock may be held that it takes.
  void end();

 private:
  void count_caller(int change);
  /// Is the function to run, and nobody told yet? Then the caller says so, without the lock.
  [[nodiscard]] bool due() TENDON_REQUIRES(mutex_);
  void schedule();
  void run();
  void ran();

  ContextCore& context_;
  const std::function<void()> callback_;
  Mutex mutex_;
  CondVar ran_;
  int caller_count_ TENDON_GUARDED_BY(mutex_) = 0;
  bool untold_ TENDON_GUARDED_BY(mutex_) = false;  // messages are there
  bool scheduled_ TENDON_GUARDED_BY(mutex_) = false;
  bool ended_ TENDON_GUARDED_BY(mutex_) = false;
  std::thread::id runner_ TENDON_GUARDED_BY(mutex_);  // none: it does not run
};

}  // namespace tendon::v0::detail
