// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace tendon::v0::detail {

/// Which file a descriptor leads to. The time of its birth, where the file system keeps one, tells
/// a file from a later one that got the same number.
struct FileMark {
  std::uint64_t device = 0;
  std::uint64_t number = 0;
  std::uint64_t special_device = 0;  ///< of a terminal: which one
  std::int64_t born_s = 0;
  std::uint32_t born_ns = 0;
  std::uint32_t type = 0;  ///< S_IFREG, S_IFSOCK and so on; 0: the descriptor is closed

  [[nodiscard]] static FileMark of(int fd) noexcept;
  /// The same of a descriptor that came from a parent or by dup2(). One that exec() closes did
  /// neither: it is a file of the program's own, and counts as closed.
  [[nodiscard]] static FileMark of_standard(int fd) noexcept;
  friend bool operator==(const FileMark&, const FileMark&) = default;
};

/// Whole lines on a descriptor, for as long as it leads to one file: see set_log_callback().
///
/// Owns:    nothing.
/// Threads: thread-safe; one write() a line, so that lines of several threads do not mix.
/// Errors:  none: a line that cannot be written is dropped, and one that may not be is counted.
/// Blocks:  as long as the reader of the descriptor lets it wait.
/// Cost:    six system calls a line.
class StderrLines {
 public:
  explicit StderrLines(const FileMark& file, int fd = STDERR_FILENO,
                       std::uint64_t left_out = 0) noexcept
      : file_(file), fd_(fd), left_out_(left_out) {}

  /// `line` ends with a newline. Before the first one behind others that were left out it writes
  /// how many these were. A reader that has gone is no reason for a SIGPIPE.
  void write(std::string_view line) noexcept;
  /// Lines since the last one that was written.
  [[nodiscard]] std::uint64_t left_out() const noexcept { return left_out_.load(); }

 private:
  const FileMark file_;
  const int fd_;
  std::atomic<std::uint64_t> left_out_;
};

}  // namespace tendon::v0::detail
