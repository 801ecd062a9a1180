// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <tendon/core/words.hpp>

namespace tendon::cli {

/// How a transfer shows its progress on stderr.
enum class ProgressStyle : std::uint8_t {
  automatic,  ///< a bar on a terminal, else nothing
  lines,      ///< "progress DONE TOTAL" for programs that read it [bytes]
  off,
};
TENDON_WORDS(ProgressStyle, automatic, lines, off);

/// Shows the rate and the remaining time of one transfer.
///
/// Owns:    the line it draws on; the destructor leaves it clean.
/// Threads: one.
/// Errors:  none.
/// Blocks:  on stderr.
/// Cost:    reads the clock at each update; draws ten times a second at most.
class Progress {
 public:
  Progress(ProgressStyle style, std::string_view label, std::uint64_t total_bytes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();
  void update(std::uint64_t done_bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(std::uint64_t done_bytes, Clock::time_point now);

  ProgressStyle style_;
  bool bar_;
  bool drawn_ = false;
  std::string label_;
  std::uint64_t total_bytes_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_ = start_;
};

/// Seconds since `start`, never zero: rates are divided by it.
[[nodiscard]] double seconds_since(std::chrono::steady_clock::time_point start);

}  // namespace tendon::cli
