// SPDX-License-Identifier: Apache-2.0
#include "runtime/begun_connection.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <string>

namespace tendon::v0::detail {

Result<OwnedFd> begin_connection(const SocketAddress& address, std::string_view where) {
  OwnedFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error(where, "connecting to " + address.to_string() + ": socket", errno);
  if (::connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS)
    return connection_failed(address, where, errno);
  return fd;
}

int connection_cause(int fd) noexcept {
  int cause = 0;
  socklen_t size = sizeof cause;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &size) == 0 ? cause : errno;
}

Error connection_failed(const SocketAddress& address, std::string_view where, int cause) {
  if (cause == EAGAIN) {
    return Error{ErrorCode::server_busy, where,
                 "connecting to " + address.to_string() + ": the listener's backlog is full"};
  }
  Error error = system_error(where, "connecting to " + address.to_string(), cause);
  // No socket exists there yet, but the listener may create it soon.
  if (cause == ENOENT && address.family() == AF_UNIX) error.code = ErrorCode::unreachable;
  return error;
}

}  // namespace tendon::v0::detail
