// SPDX-License-Identifier: Apache-2.0
#include "cli/sink.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace tendon::cli {
namespace {

constexpr std::size_t kFullBytes = 1 << 20;

}  // namespace

void Sink::push(std::string_view lines) {
  if (is_open()) pending_ += lines;
}

void Sink::write_some() {
  // O_NONBLOCK would change the stream of every other process that has it, the shell among them. A
  // pipe that poll() calls writable takes PIPE_BUF bytes without blocking (pipe(7)).
  for (pollfd ready{fd_, POLLOUT, 0}; is_open() && !pending_.empty() && poll(&ready, 1, 0) == 1;) {
    const std::size_t size = std::min<std::size_t>(pending_.size() - written_, PIPE_BUF);
    const ssize_t count = write(fd_, pending_.data() + written_, size);
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) {
      failure_ = count < 0 ? errno : EIO;
      pending_.clear();
      return;
    }
    written_ += static_cast<std::size_t>(count);
    is_within_line_ = pending_[written_ - 1] != '\n';
    if (written_ == pending_.size()) {
      pending_.clear();
      written_ = 0;
    }
  }
  if (written_ >= kFullBytes) {
    pending_.erase(0, written_);
    written_ = 0;
  }
}

void Sink::drop_lines() {
  const std::size_t end = is_within_line_ ? pending_.find('\n', written_) + 1 : 0;
  pending_ = end == 0 ? "" : pending_.substr(written_, end - written_);
  written_ = 0;
}

bool Sink::is_full() const noexcept { return pending_.size() - written_ >= kFullBytes; }

bool Sink::are_same(int a, int b) {
  struct stat first {};
  struct stat second {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace tendon::cli
