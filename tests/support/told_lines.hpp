// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "support/expect.hpp"

namespace tendon::test {

/// Collects lines that other threads pass to a test.
class ToldLines {
 public:
  void add(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    added_.notify_all();
  }
  /// Returns the first `count` lines once they are there; fewer if patience ends.
  [[nodiscard]] std::vector<std::string> take(std::size_t count) {
    std::unique_lock lock(mutex_);
    added_.wait_for(lock, kPatience, [&] { return lines_.size() >= count; });
    const auto end = lines_.begin() + static_cast<std::ptrdiff_t>(std::min(count, lines_.size()));
    std::vector<std::string> taken(lines_.begin(), end);
    lines_.erase(lines_.begin(), end);
    return taken;
  }
  /// Returns whether `count` lines arrive within this time.
  [[nodiscard]] bool come(std::size_t count, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    return added_.wait_for(lock, patience, [&] { return lines_.size() >= count; });
  }
  /// Returns the lines that are there now.
  [[nodiscard]] std::vector<std::string> all() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable added_;
  std::vector<std::string> lines_;
};

}  // namespace tendon::test
