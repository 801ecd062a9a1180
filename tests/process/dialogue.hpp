// SPDX-License-Identifier: Apache-2.0
// The dialogue of process/peer.hpp with a program of this folder. The program reads lines of
// standard input and answers each with one line, "ok ..." or "error <code> <detail>".
#pragma once

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>

namespace tendon::test {

using Words = std::istringstream;

inline void answer(const std::string& line) {
  std::string whole = line + "\n";
  for (const char* rest = whole.data(); rest != whole.data() + whole.size();) {
    const ssize_t written =
        write(STDOUT_FILENO, rest, static_cast<std::size_t>(whole.data() + whole.size() - rest));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(90);  // nobody listens any more
    rest += written;
  }
}

inline std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = '|';
  return text;
}
inline std::string told(const Error& error) {
  return "error " + std::string(to_string(error.code)) + " " + one_line(error.detail);
}
template <class T>
std::string told(const Result<T>& result) {
  return result ? "ok" : told(result.error());
}

template <class T>
T next(Words& words, T otherwise) {
  T value;
  return words >> value ? value : otherwise;
}
/// The last word of a command is its deadline [ms].
inline Deadline deadline(Words& words) { return std::chrono::milliseconds(next(words, 20'000)); }

/// Reads one line of standard input without a buffer: a forked child continues where its parent
/// stopped.
inline std::optional<std::string> read_line() {
  std::string line;
  for (char c = 0;;) {
    const ssize_t got = read(STDIN_FILENO, &c, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return std::nullopt;
    if (c == '\n') return line;
    line += c;
  }
}

}  // namespace tendon::test
