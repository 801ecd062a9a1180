// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>
#include <tendon/observe/log.hpp>
#include <vector>

namespace tendon::test {

/// Collects the lines that the process logs at `warn` and above while it lives.
class LogLines {
 public:
  LogLines() {
    set_log_callback(LogLevel::warn, [this](const LogLine& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(std::string(line.where) + " " + std::string(line.text));
    });
  }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;
  ~LogLines() { set_log_callback(LogLevel::warn, {}); }

  [[nodiscard]] std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  /// True if any line contains `text`.
  [[nodiscard]] bool have(std::string_view text) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        lines_, [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace tendon::test
