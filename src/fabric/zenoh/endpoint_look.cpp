// SPDX-License-Identifier: Apache-2.0
#include "fabric/zenoh/endpoint_look.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <tendon/core/result.hpp>
#include <tendon/session/address.hpp>
#include <utility>

#include "core/fd.hpp"
#include "session/holder.hpp"
#include "session/resolve.hpp"

namespace tendon::v0::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWhere = "fabric.zenoh";
constexpr std::string_view kUnix = "unixsock-stream/";

/// The address behind "tcp/" or "unixsock-stream/", without Zenoh's metadata and settings.
std::string_view place_of(std::string_view endpoint) {
  const std::size_t slash = endpoint.find('/');
  if (slash == std::string_view::npos) return {};
  const std::string_view rest = endpoint.substr(slash + 1);
  return rest.substr(0, rest.find_first_of("?#"));
}

bool is_unix(std::string_view endpoint) { return endpoint.starts_with(kUnix); }

Result<std::vector<SocketAddress>> addresses_of(std::string_view endpoint, Deadline deadline,
                                                ResolveFor purpose) {
  const std::string_view place = place_of(endpoint);
  if (is_unix(endpoint)) {
    TENDON_TRY(address, unix_socket_address(place));
    return std::vector<SocketAddress>{address};
  }
  TENDON_TRY(address, Address::parse(place));
  return resolve(address, deadline, purpose);
}

std::string reason_of(int failure) {
  if (failure == ENOENT) return "nobody listens there";
  // With a remedy, if the kernel's word alone has none.
  std::string text = system_error(kWhere, "", failure).detail.substr(2);
  text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

/// A connection that may still be on its way.
struct Dial {
  OwnedFd fd;
  bool pending = false;
  EndpointLook look;
};

Dial dial(std::string_view endpoint, Deadline deadline) {
  using State = EndpointLook::State;
  Dial dial;
  const auto addresses = addresses_of(endpoint, deadline, ResolveFor::connect);
  if (!addresses) {
    dial.look.why = addresses.error().detail;
    return dial;
  }
  for (const SocketAddress& address : *addresses) {
    const bool is_unix = address.family() == AF_UNIX;
    dial.fd = OwnedFd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const bool is_done = dial.fd && connect(dial.fd.get(), address.get(), address.length) == 0;
    const int failure = is_done ? 0 : errno;
    dial.pending = failure == EINPROGRESS;
    if (dial.pending) return dial;
    // A listener with a full backlog is there, and accepts nobody.
    dial.look.state = is_done || (is_unix && failure == EAGAIN) ? State::taken : State::refused;
    dial.look.why = failure == 0 ? "" : reason_of(failure);
    if (is_done && is_unix) dial.look.holder = process_behind(dial.fd.get());
    if (dial.look.state == State::taken) return dial;
  }
  return dial;
}

void finish(Dial& dial, Deadline deadline) {
  using State = EndpointLook::State;
  using std::chrono::milliseconds;
  if (!dial.pending) return;
  pollfd wanted{.fd = dial.fd.get(), .events = POLLOUT, .revents = 0};
  int ready = 0;
  do {
    const auto left = std::chrono::ceil<milliseconds>(deadline.remaining());
    ready = poll(&wanted, 1, static_cast<int>(std::min(left, milliseconds(60'000)).count()));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) {
    dial.look.why = "no answer to the connection";
    return;
  }
  int failure = 0;
  socklen_t size = sizeof failure;
  getsockopt(dial.fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size);
  dial.look.state = failure == 0 ? State::taken : State::refused;
  if (failure != 0) dial.look.why = reason_of(failure);
}

Error in_use(std::string_view endpoint, std::optional<pid_t> holder) {
  const std::string who =
      holder ? process_text(*holder) : "a process that the kernel does not name to this user";
  return Error{ErrorCode::address_in_use, kWhere, std::string(endpoint) + " is held by " + who,
               EADDRINUSE};
}

std::optional<Error> why_not_at_path(std::string_view endpoint) {
  const auto address = addresses_of(endpoint, Deadline::now(), ResolveFor::bind);
  if (!address) return address.error();
  const std::string path(place_of(endpoint));
  const std::string one(endpoint);
  const EndpointLook look = look_at_endpoints(std::span(&one, 1), Deadline::now())[0];
  if (look.state == EndpointLook::State::taken) return in_use(endpoint, look.holder);
  // Zenoh has a lock beside the socket, which it takes before it binds.
  const OwnedFd lock(open((path + ".lock").c_str(), O_RDONLY | O_CLOEXEC));
  if (lock && flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return in_use(endpoint, std::nullopt);
  const std::string directory = fs::path(path).parent_path();
  if (access(directory.empty() ? "." : directory.c_str(), W_OK | X_OK) != 0)
    return system_error(kWhere, "listening at '" + path + "'", errno);
  return std::nullopt;
}

std::optional<Error> why_not_at_port(std::string_view endpoint) {
  const auto addresses = addresses_of(endpoint, std::chrono::seconds(1), ResolveFor::bind);
  if (!addresses) return addresses.error();
  for (const SocketAddress& address : *addresses) {
    const OwnedFd fd(socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int yes = 1;
    if (fd) (void)setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd && bind(fd.get(), address.get(), address.length) == 0 && listen(fd.get(), 1) == 0)
      continue;
    const int failure = errno;
    if (failure == EADDRINUSE) {
      const auto parsed = Address::parse(place_of(endpoint));
      return in_use(endpoint, listener_at_port(parsed->port()));
    }
    if (failure == EADDRNOTAVAIL) {
      return Error{ErrorCode::invalid_argument, kWhere,
                   std::string(endpoint) +
                       " is no address of this host: legal are those that `ip address` lists, and "
                       "0.0.0.0 or [::] for all of them"};
    }
    return system_error(kWhere, "listening at " + std::string(endpoint), failure);
  }
  return std::nullopt;
}

}  // namespace

std::vector<EndpointLook> look_at_endpoints(std::span<const std::string> endpoints,
                                            Deadline deadline) {
  std::vector<Dial> dials;
  dials.reserve(endpoints.size());
  for (const std::string& endpoint : endpoints) dials.push_back(dial(endpoint, deadline));
  std::vector<EndpointLook> looks;
  looks.reserve(dials.size());
  for (Dial& one : dials) {
    finish(one, deadline);
    looks.push_back(std::move(one.look));
  }
  return looks;
}

std::optional<Error> why_not_listening(std::string_view endpoint) {
  return is_unix(endpoint) ? why_not_at_path(endpoint) : why_not_at_port(endpoint);
}

}  // namespace tendon::v0::detail
