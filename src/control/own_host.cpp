// SPDX-License-Identifier: Apache-2.0
#include "control/own_host.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "core/fd.hpp"

namespace tendon::v0::detail {
namespace {

std::string without_brackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

}  // namespace

std::string own_host_towards(const std::string& host) {
  if (host.empty()) return {};
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  // Any port: a datagram socket that connects chooses its interface, and sends nothing.
  if (getaddrinfo(without_brackets(host).c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, &freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const OwnedFd socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    std::array<char, NI_MAXHOST> text{};
    if (!socket || connect(socket.get(), at->ai_addr, at->ai_addrlen) != 0 ||
        getsockname(socket.get(), address, &size) != 0 ||
        getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    const std::string name(text.data());
    return own.ss_family == AF_INET6 ? "[" + name + "]" : name;
  }
  return {};
}

}  // namespace tendon::v0::detail
