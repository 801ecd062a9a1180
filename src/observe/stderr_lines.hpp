// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace tendon::v0::detail {

/// Identifies the file of a descriptor. The time of its birth, if the file system keeps one,
/// distinguishes a file from a later one that got the same number.
struct FileMark {
  std::uint64_t device = 0;
  std::uint64_t number = 0;
  std::uint64_t special_device = 0;  ///< of a terminal: its device
  std::int64_t born_s = 0;
  std::uint32_t born_ns = 0;
  std::uint32_t type = 0;  ///< S_IFREG, S_IFSOCK and so on; 0: the descriptor is closed

  [[nodiscard]] static FileMark of(int fd) noexcept;
  /// The same for a descriptor that was inherited from a parent or made by dup2(). A descriptor
  /// that exec() closes was neither: it is a file of the program's own, and counts as closed.
  [[nodiscard]] static FileMark of_standard(int fd) noexcept;
  friend bool operator==(const FileMark&, const FileMark&) = default;
};

/// Writes whole lines to a descriptor, as long as it leads to one file: see set_log_callback().
///
/// Owns:    nothing.
/// Threads: thread-safe; one write() a line, so that lines of several threads do not mix.
/// Errors:  none: a line that cannot be written is dropped, and a forbidden one is counted.
/// Blocks:  as long as the reader of the descriptor makes it wait.
/// Cost:    six system calls a line.
class StderrLines {
 public:
  explicit StderrLines(const FileMark& file, int fd = STDERR_FILENO,
                       std::uint64_t left_out = 0) noexcept
      : file_(file), fd_(fd), left_out_(left_out) {}

  /// Writes `line`, which ends with a newline. After lines that were left out it first writes their
  /// number. A reader that has closed its end causes no SIGPIPE.
  void write(std::string_view line) noexcept;
  /// The number of lines left out since the last written one.
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_.load(); }

 private:
  const FileMark file_;
  const int fd_;
  std::atomic<std::uint64_t> left_out_;
};

}  // namespace tendon::v0::detail
