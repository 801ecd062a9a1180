// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tendon::cli {

/// One of the two standard streams, written without waiting for its reader.
///
/// Owns:    the bytes that could not be written yet, not the descriptor.
/// Threads: one.
/// Errors:  failure() is the errno of the write that failed, EPIPE after the reader has closed;
///          nothing is written after that.
/// Blocks:  write_some(): no, when poll() found the descriptor writable.
/// Cost:    the bytes it holds; is_full() asks the caller to add no more for now.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Adds bytes that stay together: whole lines. Drops them when the sink is not open.
  void push(std::string_view lines);
  /// Writes as much as the reader takes at once.
  void write_some();
  /// Drops the bytes that could not be written, except the rest of a line that has begun.
  void drop_lines();
  /// The descriptor that poll() must find writable, -1 while there is nothing to write.
  [[nodiscard]] int wanted_fd() const noexcept { return pending_.empty() ? -1 : fd_; }
  [[nodiscard]] bool is_open() const noexcept { return failure_ == 0; }
  [[nodiscard]] int failure() const noexcept { return failure_; }
  [[nodiscard]] bool is_full() const noexcept;
  /// Whether both lead to one terminal, file or pipe: one Sink must then write for both, or lines
  /// mix.
  [[nodiscard]] static bool are_same(int a, int b);

 private:
  int fd_;
  int failure_ = 0;
  bool is_within_line_ = false;  ///< whether the last written byte is inside a line
  std::string pending_;
  std::size_t written_ = 0;  ///< of pending_
};

}  // namespace tendon::cli
