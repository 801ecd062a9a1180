// SPDX-License-Identifier: Apache-2.0
#include "cli/line_tagger.hpp"

#include <algorithm>

namespace tendon::cli {

void LineTagger::feed(std::string_view bytes, std::string& lines) {
  while (!bytes.empty()) {
    if (bytes.front() == '\n') {
      emit(lines);
      bytes.remove_prefix(1);
      continue;
    }
    // Checked only now: a line of exactly this length is complete when its end follows.
    if (line_.size() == kMaxLineBytes) emit(lines);
    const std::size_t room = kMaxLineBytes - line_.size();
    const std::size_t size = std::min({bytes.find('\n'), bytes.size(), room});
    line_ += bytes.substr(0, size);
    bytes.remove_prefix(size);
  }
}

void LineTagger::end(std::string& lines) {
  if (!line_.empty()) emit(lines);
}

void LineTagger::emit(std::string& lines) {
  lines += tag_;
  lines += line_;
  lines += '\n';
  line_.clear();
}

}  // namespace tendon::cli
