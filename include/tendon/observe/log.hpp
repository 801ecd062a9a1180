// SPDX-License-Identifier: Apache-2.0
// Tendon says little: an error is a value that the caller gets. The log is for what has no caller:
// a client that was turned away, a path that was not taken, a peer that fell silent.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <tendon/core/export.hpp>

namespace tendon {
inline namespace v0 {

/// How much it matters; each level includes those before it.
enum class LogLevel : std::uint8_t { error, warn, info, debug };

[[nodiscard]] TENDON_API std::string_view to_string(LogLevel level);
/// "error", "warn", "info" or "debug"; nothing for any other text.
[[nodiscard]] TENDON_API std::optional<LogLevel> parse_log_level(std::string_view text);

/// `where` is the stable literal of the place ("session.resolve"); both views die with the call.
using LogCallback = std::function<void(LogLevel, std::string_view where, std::string_view text)>;

/// Sends what is logged at `level` or above to `callback`; an empty one brings back the default,
/// which writes lines to stderr. The callback may be called by several threads at once, may log
/// itself, and what it throws is dropped. A call in progress on another thread may still use the
/// former callback.
///
/// Until the first call the environment decides: TENDON_LOG=error|warn|info|debug, `warn` without
/// it.
TENDON_API void set_log_callback(LogLevel level, LogCallback callback);

/// True when a text of this level reaches the callback: ask before building an expensive one.
[[nodiscard]] TENDON_API bool log_enabled(LogLevel level) noexcept;

/// Never throws; a text that cannot be delivered is dropped. Never give it payload or keys.
TENDON_API void log(LogLevel level, std::string_view where, std::string_view text) noexcept;

}  // namespace v0
}  // namespace tendon
