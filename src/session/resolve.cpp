// SPDX-License-Identifier: Apache-2.0
#include "session/resolve.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <tendon/session/limits.hpp>
#include <utility>

#include "core/c_locale.hpp"
#include "core/process_wide.hpp"
#include "core/thread.hpp"
#include "session/lookup_gate.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "session.resolve";

static_assert(kMaxUnixPathBytes == sizeof(sockaddr_un::sun_path) - 1);

// sockaddr_storage may be read as any of its kinds; memcpy keeps that legal C++.
template <class T>
T as(const SocketAddress& address) {
  static_assert(sizeof(T) <= sizeof(sockaddr_storage));
  T value{};
  std::memcpy(&value, &address.storage, sizeof value);
  return value;
}

struct Lookup {
  int status = 0;
  int errno_value = 0;
  std::vector<SocketAddress> found;
};

Lookup look_up(const std::string& host, std::uint16_t port, ResolveFor purpose, int extra_flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | extra_flags;
  if (purpose == ResolveFor::bind) hints.ai_flags |= AI_PASSIVE;
  addrinfo* list = nullptr;
  Lookup result;
  errno = 0;
  result.status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  result.errno_value = errno;
  if (result.status != 0) return result;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next) {
    if (one->ai_family != AF_INET && one->ai_family != AF_INET6) continue;
    SocketAddress address;
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
    result.found.push_back(address);
  }
  return result;
}

Lookup look_up_between_forks(const std::string& host, std::uint16_t port, ResolveFor purpose) {
  const LookupGate::Inside inside;
  return look_up(host, port, purpose, 0);
}

Result<std::vector<SocketAddress>> to_result(const Address& address, Lookup lookup) {
  if (lookup.status == EAI_SYSTEM) {
    return system_error(kWhere, "getaddrinfo('" + address.host() + "')", lookup.errno_value);
  }
  if (lookup.status != 0 || lookup.found.empty()) {
    const CLocale english;
    const char* why = lookup.status != 0 ? gai_strerror(lookup.status) : "it has no IP address";
    return Error{ErrorCode::unreachable, kWhere,
                 "host '" + address.host() + "' of address '" + address.to_string() +
                     "' cannot be looked up: " + why};
  }
  return std::move(lookup.found);
}

constinit PerProcess<std::atomic<int>> pending_of_process;

struct Pending {
  Mutex mutex;
  CondVar done;
  std::optional<Lookup> result TENDON_GUARDED_BY(mutex);
};

Result<std::vector<SocketAddress>> resolve_name(const Address& address, Deadline deadline,
                                                ResolveFor purpose) {
  if (deadline.has_passed()) {
    return Error{ErrorCode::timeout, kWhere,
                 "no time to look up host '" + address.host() + "': the deadline has passed"};
  }
  std::atomic<int>& pending_lookups = pending_of_process.get();
  if (pending_lookups.fetch_add(1) >= kMaxPendingLookups) {
    pending_lookups.fetch_sub(1);
    return Error{ErrorCode::resource_exhausted, kWhere,
                 "host '" + address.host() +
                     "' is not looked up: " + std::to_string(kMaxPendingLookups) +
                     " look-ups, the limit, still wait for the resolver"};
  }
  const auto pending = std::make_shared<Pending>();
  // getaddrinfo cannot be interrupted, so after the deadline the thread is left to finish alone.
  const std::string task = "that looks up '" + address.host() + "'";
  auto thread = Thread::start(
      {.name = "tendon-lookup", .where = kWhere, .task = task},
      [pending, &pending_lookups, host = address.host(), port = address.port(), purpose] {
        Lookup result = look_up_between_forks(host, port, purpose);
        pending_lookups.fetch_sub(1);
        const Lock lock(pending->mutex);
        pending->result = std::move(result);
        pending->done.notify_one();
      });
  if (!thread) {
    pending_lookups.fetch_sub(1);
    return std::move(thread).error();
  }
  thread->detach();
  const Lock lock(pending->mutex);
  while (!pending->result.has_value() && pending->done.wait_until(pending->mutex, deadline)) {
  }
  if (!pending->result.has_value()) {
    return Error{ErrorCode::timeout, kWhere,
                 "looking up host '" + address.host() + "' took longer than the deadline allows"};
  }
  return to_result(address, *std::move(pending->result));
}

// Converts an IPv4 address inside IPv6 to plain IPv4.
SocketAddress unmapped(const SocketAddress& address) {
  if (address.family() != AF_INET6) return address;
  const auto v6 = as<sockaddr_in6>(address);
  if (!IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return address;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, v6.sin6_addr.s6_addr + 12, sizeof v4.sin_addr);
  SocketAddress result;
  std::memcpy(&result.storage, &v4, sizeof v4);
  result.length = sizeof v4;
  return result;
}

bool is_loopback_ipv4(std::uint32_t host_order) { return host_order >> 24 == IN_LOOPBACKNET; }

// A socket for both versions shows an IPv4 peer as mapped.
Source source_of(const SocketAddress& address) {
  Source source{};
  if (address.family() == AF_INET6) {
    std::memcpy(source.data(), as<sockaddr_in6>(address).sin6_addr.s6_addr, source.size());
    return source;
  }
  const in_addr host = as<sockaddr_in>(address).sin_addr;
  source[10] = source[11] = std::byte{0xff};
  std::memcpy(source.data() + 12, &host, sizeof host);
  return source;
}

}  // namespace

std::string SocketAddress::to_string() const {
  switch (family()) {
    case AF_INET: {
      const auto v4 = as<sockaddr_in>(*this);
      char text[INET_ADDRSTRLEN] = {};
      inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
      return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
    }
    case AF_INET6: {
      char host[INET6_ADDRSTRLEN + 32] = {};  // with "%interface" for a link-local address
      const auto v6 = as<sockaddr_in6>(*this);
      if (getnameinfo(get(), length, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) {
        return "?";
      }
      return "[" + std::string(host) + "]:" + std::to_string(ntohs(v6.sin6_port));
    }
    case AF_UNIX: {
      const auto local = as<sockaddr_un>(*this);
      if (length <= offsetof(sockaddr_un, sun_path)) return "unix:";
      const std::size_t size = length - offsetof(sockaddr_un, sun_path);
      if (local.sun_path[0] == '\0') return "unix:@" + std::string(local.sun_path + 1, size - 1);
      return "unix:" + std::string(local.sun_path, strnlen(local.sun_path, size));
    }
    default:
      return "?";
  }
}

bool SocketAddress::is_loopback() const {
  switch (family()) {
    case AF_UNIX:
      return true;
    case AF_INET:
      return is_loopback_ipv4(ntohl(as<sockaddr_in>(*this).sin_addr.s_addr));
    case AF_INET6: {
      const in6_addr host = as<sockaddr_in6>(*this).sin6_addr;
      if (!IN6_IS_ADDR_V4MAPPED(&host)) return IN6_IS_ADDR_LOOPBACK(&host);
      std::uint32_t v4 = 0;
      std::memcpy(&v4, host.s6_addr + 12, sizeof v4);
      return is_loopback_ipv4(ntohl(v4));
    }
    default:
      return false;
  }
}

bool SocketAddress::is_link_local() const {
  const SocketAddress plain = unmapped(*this);
  if (plain.family() == AF_INET) {
    constexpr std::uint32_t kPrefix = 0xa9fe;  // 169.254
    return ntohl(as<sockaddr_in>(plain).sin_addr.s_addr) >> 16 == kPrefix;
  }
  if (plain.family() != AF_INET6) return false;
  const auto v6 = as<sockaddr_in6>(plain);
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr);
}

Result<std::vector<SocketAddress>> resolve(const Address& address, Deadline deadline,
                                           ResolveFor purpose) {
  if (address.kind() == AddressKind::unix_path) {
    TENDON_TRY(socket_address, unix_socket_address(address.path()));
    return std::vector<SocketAddress>{socket_address};
  }
  if (address.host().empty()) {
    return Error{ErrorCode::invalid_argument, kWhere, "the address is empty: parse one first"};
  }
  if (purpose == ResolveFor::connect && address.port() == 0) {
    return Error{ErrorCode::invalid_argument, kWhere,
                 "address '" + address.to_string() +
                     "' has port 0, which only a listener can use; legal here: 1-65535"};
  }
  Lookup numeric = look_up(address.host(), address.port(), purpose, AI_NUMERICHOST);
  if (numeric.status != EAI_NONAME) return to_result(address, std::move(numeric));
  return resolve_name(address, deadline, purpose);
}

std::string connection_text(int fd, ConnectionEnd end) {
  SocketAddress here;
  SocketAddress there;
  here.length = there.length = sizeof here.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here.storage), &here.length) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&there.storage), &there.length) != 0 ||
      (here.family() != AF_INET && here.family() != AF_INET6)) {
    return {};
  }
  // A listener for both versions sees an IPv4 connector as mapped.
  const std::string a = unmapped(here).to_string();
  const std::string b = unmapped(there).to_string();
  return end == ConnectionEnd::connector ? a + " > " + b : b + " > " + a;
}

std::string local_host(int fd) {
  SocketAddress local;
  local.length = sizeof local.storage;
  auto* const address = reinterpret_cast<sockaddr*>(&local.storage);
  if (getsockname(fd, address, &local.length) != 0 || local.family() == AF_UNIX) return {};
  const std::string text = local.to_string();
  return text.substr(0, text.rfind(':'));
}

std::optional<Source> remote_source(int fd) {
  SocketAddress here;
  SocketAddress there;
  here.length = there.length = sizeof here.storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&here.storage), &here.length) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&there.storage), &there.length) != 0 ||
      (there.family() != AF_INET && there.family() != AF_INET6) || there.is_loopback()) {
    return {};
  }
  // The kernel dials an address of this host from that same address.
  const Source source = source_of(there);
  if (source == source_of(here)) return {};
  return source;
}

Result<SocketAddress> unix_socket_address(std::string_view path) {
  if (path.empty() || path.size() > kMaxUnixPathBytes) {
    return Error{ErrorCode::invalid_argument, kWhere,
                 "the path of a unix socket has " + std::to_string(path.size()) +
                     " bytes; legal are 1-" + std::to_string(kMaxUnixPathBytes)};
  }
  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  std::memcpy(local.sun_path, path.data(), path.size());
  std::size_t size = path.size();
  if (path.front() == '@') {
    local.sun_path[0] = '\0';
  } else {
    ++size;  // the final zero of a path
  }
  SocketAddress address;
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + size);
  std::memcpy(&address.storage, &local, sizeof local);
  return address;
}

}  // namespace tendon::v0::detail
