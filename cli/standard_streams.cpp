// SPDX-License-Identifier: Apache-2.0
#include "cli/standard_streams.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "core/fd.hpp"

namespace tendon::cli {

void open_missing_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
    // The lowest free number is this one. Children inherit it, as they do the others.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd) return;  // NOLINT
}

void release_stdin() {
  const detail::OwnedFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (nothing) dup2(nothing.get(), STDIN_FILENO);
}

}  // namespace tendon::cli
