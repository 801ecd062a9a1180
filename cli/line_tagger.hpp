// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tendon::cli {

/// Cuts a stream of bytes into lines, each after a tag: "[rank 2] epoch 1\n".
///
/// Owns:    the tag and the line that is not complete yet.
/// Threads: one.
/// Errors:  none; bytes of any value pass unchanged.
/// Blocks:  never.
/// Cost:    at most kMaxLineBytes, and a copy of each byte.
///
/// A line of more than kMaxLineBytes becomes several, so that a stream without an end of line
/// needs no memory without bound.
class LineTagger {
 public:
  static constexpr std::size_t kMaxLineBytes = 64 * 1024;

  explicit LineTagger(std::string tag) : tag_(std::move(tag)) {}
  /// Reads bytes, and appends the lines that they complete to `lines`.
  void feed(std::string_view bytes, std::string& lines);
  /// Ends the stream: appends the incomplete line, with the end of line that it lacks.
  void end(std::string& lines);

 private:
  void emit(std::string& lines);

  std::string tag_;
  std::string line_;
};

}  // namespace tendon::cli
