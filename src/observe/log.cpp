// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/observe/log.hpp>
#include <utility>

#include "core/process_wide.hpp"
#include "core/text.hpp"

namespace tendon::v0 {
namespace {

void write_to_stderr(LogLevel level, std::string_view where, std::string_view text) {
  std::string line("tendon ");
  line.append(to_string(level)).append(" [").append(where).append("] ").append(text).append("\n");
  // One call a line: lines of several threads and processes do not mix.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

class Logger {
 public:
  Logger() : callback_(std::make_shared<const LogCallback>(write_to_stderr)) {
    const char* text = std::getenv("TENDON_LOG");
    if (text == nullptr || *text == '\0') return;
    if (const auto level = parse_log_level(text)) {
      level_.store(*level, std::memory_order_relaxed);
    } else {
      write_to_stderr(LogLevel::warn, "observe.log",
                      "TENDON_LOG is '" + detail::cleaned(text) +
                          "'; legal are error, warn, info, debug. Using warn.");
    }
  }

  bool enabled(LogLevel level) const noexcept {
    return level <= level_.load(std::memory_order_relaxed);
  }
  void set(LogLevel level, LogCallback callback) {
    if (!callback) callback = write_to_stderr;
    auto shared = std::make_shared<const LogCallback>(std::move(callback));
    const detail::Lock lock(mutex_);
    callback_.swap(shared);
    level_.store(level, std::memory_order_relaxed);
  }
  std::shared_ptr<const LogCallback> callback() const {
    const detail::Lock lock(mutex_);
    return callback_;
  }
  /// A child must not find it locked by a thread that only its parent has.
  static detail::Mutex& mutex() TENDON_RETURNS_LOCK(mutex_) { return mutex_; }

 private:
  static constinit detail::Mutex mutex_;
  std::shared_ptr<const LogCallback> callback_ TENDON_GUARDED_BY(mutex_);
  std::atomic<LogLevel> level_{LogLevel::warn};
};

constinit detail::Mutex Logger::mutex_;

// While the program or library is loaded: before any thread can hold the lock.
[[maybe_unused]] const int kFreeInChildren =
    pthread_atfork([]() TENDON_ACQUIRES(Logger::mutex()) { Logger::mutex().lock(); },
                   []() TENDON_RELEASES(Logger::mutex()) { Logger::mutex().unlock(); },
                   []() TENDON_RELEASES(Logger::mutex()) { Logger::mutex().unlock(); });

Logger& logger() {
  static constinit detail::MadeOnce<Logger> made;
  return made.get([] { return std::make_unique<Logger>(); });
}

}  // namespace

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::error:
      return "error";
    case LogLevel::warn:
      return "warn";
    case LogLevel::info:
      return "info";
    case LogLevel::debug:
      return "debug";
  }
  return "error";
}

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (const LogLevel level : {LogLevel::error, LogLevel::warn, LogLevel::info, LogLevel::debug}) {
    if (text == to_string(level)) return level;
  }
  return std::nullopt;
}

void set_log_callback(LogLevel level, LogCallback callback) {
  logger().set(level, std::move(callback));
}

bool log_enabled(LogLevel level) noexcept { return logger().enabled(level); }

void log(LogLevel level, std::string_view where, std::string_view text) noexcept {
  try {
    Logger& target = logger();
    if (!target.enabled(level)) return;
    // The words may be a peer's, and the line may end on a terminal.
    if (detail::is_clean(text))
      (*target.callback())(level, where, text);
    else
      (*target.callback())(level, where, detail::cleaned(text));
  } catch (...) {
    // A log that cannot be written is no reason to fail what was being logged.
  }
}

}  // namespace tendon::v0
