// SPDX-License-Identifier: Apache-2.0
// Tendon logs little: an error is a value that the caller gets. The log is for events without a
// caller: a client that was turned away, a path that was not taken, a peer that fell silent.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>

namespace tendon {
inline namespace v0 {

/// The importance of a line; each level includes those before it.
enum class LogLevel : std::uint8_t { error, warn, info, debug };
TENDON_WORDS(LogLevel, error, warn, info, debug);

[[deprecated("parse_word<LogLevel>()")]] [[nodiscard]] constexpr std::optional<LogLevel>
parse_log_level(std::string_view text) {
  return parse_word<LogLevel>(text);
}

/// One line of the log, without hidden characters.
///
/// Owns:    nothing: the views are valid during the callback only.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    none.
struct LogLine {
  std::chrono::system_clock::time_point time;
  std::uint32_t pid = 0;
  /// The Context that the line is about: its name and the first digits of its id,
  /// "learner/3f2a91c0". Empty: it is about none, or about several.
  std::string_view context;
  LogLevel level = LogLevel::error;
  std::string_view where;  ///< the stable name of the place, "session.resolve"
  std::string_view text;
};

/// "2026-11-28T17:30:01.123Z tendon[4711] warn learner/3f2a91c0 [listener.accept] TEXT": the time
/// is UTC, and "-" stands for no Context.
[[nodiscard]] TENDON_API std::string to_string(const LogLine& line);

using LogCallback = std::function<void(const LogLine&)>;

/// Sends lines of `level` or above to `callback`; an empty one restores the default, which writes
/// lines to descriptor 2. Several threads may call the callback at once; it may log itself, and its
/// exceptions are dropped. A call in progress on another thread may still use the former callback.
///
/// The default writes only while descriptor 2 is the same file as when this library was loaded, or
/// when this function last restored the default. A program that closes 2 gets that number for the
/// next file or connection that it opens, where no line may be written. A program that redirects 2
/// on purpose (dup2 onto a log that was rotated, /dev/null of a daemon, the capture of a test)
/// calls this once more. A descriptor 2 that exec() closes is never standard error: neither a
/// parent nor dup2() leaves such a descriptor. Lines left out meanwhile are counted, and the next
/// line says how many. The look and the write are two system calls: no other thread may close 2 in
/// between.
///
/// Before the first call the environment decides: TENDON_LOG=error|warn|info|debug, `warn` without
/// it.
TENDON_API void set_log_callback(LogLevel level, LogCallback callback);

/// True when a text of this level reaches the callback; ask before building an expensive one.
[[nodiscard]] TENDON_API bool log_enabled(LogLevel level) noexcept;

/// Logs a line about no Context. Never throws, and leaves errno as it is; a text that cannot be
/// delivered is dropped. Never pass payload or keys.
TENDON_API void log(LogLevel level, std::string_view where, std::string_view text) noexcept;

}  // namespace v0
}  // namespace tendon
