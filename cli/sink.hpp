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
/// Errors:  failure() is the errno of the write that failed, EPIPE when the reader has gone; from
///          then on nothing is written.
/// Blocks:  write_some(): no, when poll() found the descriptor writable.
/// Cost:    the bytes it holds; is_full() asks to feed it no more for now.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;

  /// Bytes that stay together: whole lines. Dropped when it is not open.
  void push(std::string_view lines);
  /// As much as the reader takes at once.
  void write_some();
  /// Forgets what could not be written, but for the rest of a line that has begun.
  void drop_lines();
  /// A descriptor for poll() to find writable, -1 while there is nothing to write.
  [[nodiscard]] int wanted_fd() const noexcept { return pending_.empty() ? -1 : fd_; }
  [[nodiscard]] bool is_open() const noexcept { return failure_ == 0; }
  [[nodiscard]] int failure() const noexcept { return failure_; }
  [[nodiscard]] bool is_full() const noexcept;
  /// Both lead to one terminal, file or pipe: then one Sink must write for both, or lines mix.
  [[nodiscard]] static bool are_same(int a, int b);

 private:
  int fd_;
  int failure_ = 0;
  bool is_within_line_ = false;  ///< what was written ends so
  std::string pending_;
  std::size_t written_ = 0;  ///< of pending_
};

}  // namespace tendon::cli
