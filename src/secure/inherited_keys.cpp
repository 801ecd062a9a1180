// SPDX-License-Identifier: Apache-2.0
#include "secure/inherited_keys.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <string>

#include "core/fd.hpp"
#include "secure/credential_file.hpp"
#include "secure/key_file.hpp"
#include "secure/secret_bytes.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "secure.inherited";

Result<void> wait_for_bytes(int descriptor, const std::string& name, Deadline deadline) {
  using std::chrono::milliseconds;
  constexpr milliseconds kMost{std::numeric_limits<int>::max()};
  do {
    const auto left = std::min(std::chrono::ceil<milliseconds>(deadline.remaining()), kMost);
    pollfd readable{.fd = descriptor, .events = POLLIN, .revents = 0};
    const int ready = poll(&readable, 1, static_cast<int>(left.count()));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return system_error(kWhere, "poll of " + name, errno);
  } while (!deadline.has_passed());
  return Error{ErrorCode::timeout, kWhere,
               "the other end of " + name +
                   " was not closed in time: who writes the keys has to close it behind them"};
}

}  // namespace

Result<std::vector<SharedKey>> read_inherited_keys(int descriptor, Deadline deadline) {
  const std::string name = "descriptor " + std::to_string(descriptor);
  if (descriptor == STDOUT_FILENO || descriptor == STDERR_FILENO) {
    return Error{ErrorCode::invalid_argument, kWhere,
                 name +
                     " is where this program writes (stdout or stderr); legal are 0, which is "
                     "stdin, and those from 3 on"};
  }
  const int flags = fcntl(descriptor, F_GETFD);
  // This process opens its descriptors with close-on-exec, which no inherited descriptor has.
  if (flags < 0 || (flags & FD_CLOEXEC) != 0) {
    return Error{ErrorCode::invalid_argument, kWhere,
                 name + " was not inherited; a shell opens it by '" + std::to_string(descriptor) +
                     "< FILE' behind the command"};
  }
  const OwnedFd fd(descriptor);
  SecretBytes room(kMaxCredentialFileBytes + 1);
  std::size_t size_bytes = 0;
  for (ssize_t got = -1; got != 0 && size_bytes < room.bytes().size();) {
    TENDON_CHECK(wait_for_bytes(fd.get(), name, deadline));
    const MutableBytes rest = room.writable().subspan(size_bytes);
    got = read(fd.get(), rest.data(), rest.size());
    if (got < 0 && errno != EINTR && errno != EAGAIN)
      return system_error(kWhere, "read of " + name, errno);
    size_bytes += static_cast<std::size_t>(std::max<ssize_t>(got, 0));
  }
  const Bytes text = room.bytes().first(size_bytes);
  TENDON_CHECK(check_size(text, name));
  return parse_keys(text, name);
}

}  // namespace tendon::v0::detail
