// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/observe/log.hpp>

namespace tendon::python {

/// The fields of a LogLine, with its own copies of the texts.
struct OwnedLogLine {
  std::chrono::system_clock::time_point time;
  std::uint32_t pid = 0;
  std::string context;
  LogLevel level = LogLevel::error;
  std::string where;
  std::string text;
};

/// A queue of lines from the threads that log, which never take the GIL, to the Python thread that
/// calls the callback.
///
///   open -- finish() --> finished
///
/// Owns:    at most kMostWaiting lines. It drops further ones, and a line in their place tells
///          their number.
/// Threads: thread-safe; one thread takes.
/// Errors:  none.
/// Blocks:  next() until there is a line or the queue is finished.
/// Cost:    push() costs a lock and the copies of its texts.
class LogQueue {
 public:
  static constexpr std::size_t kMostWaiting = 1024;

  explicit LogQueue(LogLevel level) noexcept : level_(level) {}

  [[nodiscard]] LogLevel level() const noexcept { return level_; }
  void push(const LogLine& line) TENDON_EXCLUDES(mutex_);
  /// The next line; nullopt once the queue is finished and empty.
  [[nodiscard]] std::optional<OwnedLogLine> next() TENDON_EXCLUDES(mutex_);
  /// Stops accepting lines; the waiting ones are still delivered.
  void finish() TENDON_EXCLUDES(mutex_);

 private:
  struct Waiting {
    OwnedLogLine line;
    std::uint64_t left_out_before = 0;
  };

  const LogLevel level_;
  detail::Mutex mutex_;
  detail::CondVar changed_;
  std::deque<Waiting> lines_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t left_out_ TENDON_GUARDED_BY(mutex_) = 0;  // dropped after the last waiting line
  bool finished_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::python
