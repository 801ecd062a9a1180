// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/observe/log.hpp>
#include <utility>

#include "core/process_wide.hpp"
#include "core/text.hpp"
#include "observe/context_log.hpp"
#include "observe/stderr_lines.hpp"

namespace tendon::v0 {
namespace {

using detail::FileMark;
using detail::StderrLines;

// While the program or library is loaded: nobody but its parent can have closed it before.
const FileMark kStderrAtLoad = FileMark::of_standard(STDERR_FILENO);

class Logger {
 public:
  Logger() {
    const detail::Lock lock(mutex_);
    use_stderr(kStderrAtLoad);
    const char* text = std::getenv("TENDON_LOG");
    if (text == nullptr || *text == '\0') return;
    if (const auto level = parse_word<LogLevel>(text)) {
      level_.store(*level, std::memory_order_relaxed);
      return;
    }
    const std::string complaint = "TENDON_LOG is '" + detail::cleaned(text) + "'; legal are " +
                                  legal_words<LogLevel>() + ". Using warn.";
    (*callback_)({.time = std::chrono::system_clock::now(),
                  .pid = static_cast<std::uint32_t>(getpid()),
                  .context = {},
                  .level = LogLevel::warn,
                  .where = "observe.log",
                  .text = complaint});
  }

  bool enabled(LogLevel level) const noexcept {
    return level <= level_.load(std::memory_order_relaxed);
  }
  void set(LogLevel level, LogCallback callback) {
    // The former one is dropped after the lock: its end may log.
    auto shared = std::make_shared<const LogCallback>(std::move(callback));
    const detail::Lock lock(mutex_);
    if (*shared)
      callback_.swap(shared);
    else
      shared = use_stderr(FileMark::of_standard(STDERR_FILENO));
    level_.store(level, std::memory_order_relaxed);
  }
  std::shared_ptr<const LogCallback> callback() const {
    const detail::Lock lock(mutex_);
    return callback_;
  }
  /// A child must not find it locked by a thread that only its parent has.
  static detail::Mutex& mutex() TENDON_RETURNS_LOCK(mutex_) { return mutex_; }

 private:
  /// Writes lines to descriptor 2 while it is that file. Returns the former callback.
  std::shared_ptr<const LogCallback> use_stderr(const FileMark& file) TENDON_REQUIRES(mutex_) {
    const std::uint64_t left_out = stderr_ == nullptr ? 0 : stderr_->left_out();
    stderr_ = std::make_shared<StderrLines>(file, STDERR_FILENO, left_out);
    return std::exchange(
        callback_, std::make_shared<const LogCallback>([lines = stderr_](const LogLine& line) {
          lines->write(to_string(line) + '\n');
        }));
  }

  static constinit detail::Mutex mutex_;
  std::shared_ptr<const LogCallback> callback_ TENDON_GUARDED_BY(mutex_);
  std::shared_ptr<StderrLines> stderr_ TENDON_GUARDED_BY(mutex_);  // the last one that was used
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

void set_log_callback(LogLevel level, LogCallback callback) {
  logger().set(level, std::move(callback));
}

bool log_enabled(LogLevel level) noexcept { return logger().enabled(level); }

std::string to_string(const LogLine& line) {
  using namespace std::chrono;
  const auto day = floor<days>(line.time);
  const year_month_day date(day);
  const hh_mm_ss clock(floor<milliseconds>(line.time - day));
  char front[64];
  std::snprintf(front, sizeof front, "%04d-%02u-%02uT%02d:%02d:%02d.%03dZ tendon[%u] ",
                static_cast<int>(date.year()), static_cast<unsigned>(date.month()),
                static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
                static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()),
                static_cast<int>(clock.subseconds().count()), static_cast<unsigned>(line.pid));
  std::string text(front);
  text.append(to_string(line.level)).append(" ");
  text.append(line.context.empty() ? "-" : line.context);
  return text.append(" [").append(line.where).append("] ").append(line.text);
}

void log(LogLevel level, std::string_view where, std::string_view text) noexcept {
  detail::log_of({}, level, where, text);
}

namespace detail {

void log_of(std::string_view context, LogLevel level, std::string_view where,
            std::string_view text) noexcept {
  const int errno_before = errno;
  try {
    Logger& target = logger();
    if (!target.enabled(level)) return;
    // The words may be a peer's, and the line may end on a terminal.
    const auto shown = [](std::string_view words, std::string& own) {
      return is_clean(words) ? words : std::string_view(own = cleaned(words));
    };
    std::string own_context;
    std::string own_text;
    (*target.callback())({.time = std::chrono::system_clock::now(),
                          .pid = static_cast<std::uint32_t>(getpid()),
                          .context = shown(context, own_context),
                          .level = level,
                          .where = where,
                          .text = shown(text, own_text)});
  } catch (...) {
    // A log that cannot be written must not fail the logged operation.
  }
  errno = errno_before;
}

}  // namespace detail

}  // namespace tendon::v0
