// SPDX-License-Identifier: Apache-2.0
#include "observe/stderr_lines.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <ctime>

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t joined(std::uint32_t major, std::uint32_t minor) noexcept {
  return std::uint64_t{major} << 32 | minor;
}

/// Keeps writes of this thread from ending the process while it lives.
class WithoutSigpipe {
 public:
  WithoutSigpipe() noexcept {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  ~WithoutSigpipe() {
    constexpr timespec kNow{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &kNow) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_ = false;
};

void write_all(int fd, std::string_view text) noexcept {
  const WithoutSigpipe guard;
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

FileMark FileMark::of(int fd) noexcept {
  struct statx file {};
  if (statx(fd, "", AT_EMPTY_PATH, STATX_TYPE | STATX_INO | STATX_BTIME, &file) != 0) {
    // Some sandboxes have no statx().
    struct stat known {};
    if (fstat(fd, &known) != 0) return {};
    return {.device = known.st_dev,
            .number = known.st_ino,
            .special_device = known.st_rdev,
            .type = static_cast<std::uint32_t>(known.st_mode & S_IFMT)};
  }
  FileMark mark{.device = joined(file.stx_dev_major, file.stx_dev_minor),
                .number = file.stx_ino,
                .special_device = joined(file.stx_rdev_major, file.stx_rdev_minor),
                .type = static_cast<std::uint32_t>(file.stx_mode & S_IFMT)};
  if ((file.stx_mask & STATX_BTIME) != 0) {
    mark.born_s = file.stx_btime.tv_sec;
    mark.born_ns = file.stx_btime.tv_nsec;
  }
  return mark;
}

FileMark FileMark::of_standard(int fd) noexcept {
  const int flags = fcntl(fd, F_GETFD);
  return flags < 0 || (flags & FD_CLOEXEC) != 0 ? FileMark() : of(fd);
}

void StderrLines::write(std::string_view line) noexcept {
  if (file_.type == 0 || FileMark::of(fd_) != file_) {
    left_out_.fetch_add(1);
    return;
  }
  if (const std::uint64_t count = left_out_.exchange(0); count != 0) {
    char told[128];
    const int size = std::snprintf(told, sizeof told,
                                   "tendon: %llu lines were left out: descriptor %d was another "
                                   "file (tendon/observe/log.hpp)\n",
                                   static_cast<unsigned long long>(count), fd_);
    write_all(fd_, {told, static_cast<std::size_t>(size)});
  }
  write_all(fd_, line);
}

}  // namespace tendon::v0::detail
