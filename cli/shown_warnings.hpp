// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tendon/observe/log.hpp>

#include "cli/output.hpp"
#include "core/environment.hpp"

namespace tendon::cli {

/// Prints the warnings of one place of the library on stderr while it lives: main() leaves warnings
/// out, unless TENDON_LOG asks for them.
///
/// Owns:    the log's callback, where TENDON_LOG is not set.
/// Threads: one at a time in a process.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    none.
class ShownWarnings {
 public:
  explicit ShownWarnings(std::string_view where) {
    if (!is_quiet_) return;
    set_log_callback(LogLevel::warn, [where = std::string(where)](const LogLine& line) {
      if (line.level == LogLevel::error || line.where == where)
        say(fmt::format("tendon: {}", line.text));
    });
  }
  ShownWarnings(const ShownWarnings&) = delete;
  ShownWarnings& operator=(const ShownWarnings&) = delete;
  ~ShownWarnings() {
    if (is_quiet_) set_log_callback(LogLevel::error, {});
  }

 private:
  const bool is_quiet_ = detail::environment_variable("TENDON_LOG").empty();
};

}  // namespace tendon::cli
