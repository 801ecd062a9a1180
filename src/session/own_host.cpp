// SPDX-License-Identifier: Apache-2.0
#include "session/own_host.hpp"

#include <sys/socket.h>

#include "core/fd.hpp"
#include "session/resolve.hpp"

namespace tendon::v0::detail {

std::string own_host_towards(const std::string& host, Deadline deadline) {
  if (host.empty()) return {};
  // Any port works: connecting a datagram socket chooses its interface, and sends nothing.
  const auto address = Address::parse(host + ":9");
  if (!address) return {};
  const auto found = resolve(*address, deadline, ResolveFor::connect);
  if (!found) return {};
  for (const SocketAddress& there : *found) {
    const OwnedFd socket(::socket(there.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (socket && connect(socket.get(), there.get(), there.length) == 0)
      return local_host(socket.get());
  }
  return {};
}

}  // namespace tendon::v0::detail
