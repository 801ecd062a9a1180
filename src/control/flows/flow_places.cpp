// SPDX-License-Identifier: Apache-2.0
#include "control/flows/flow_places.hpp"

#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <tendon/control/limits.hpp>
#include <utility>

#include "core/text.hpp"
#include "runtime/strangers.hpp"
#include "session/resolve.hpp"

namespace tendon::v0::detail {
namespace {

// A server of CURVE sends its greeting and WELCOME before it knows its client, and then READY or a
// short ERROR (https://rfc.zeromq.org/spec/23, /25). READY is a frame's head, its name, a nonce and
// a box.
constexpr std::uint64_t kGreetingBytes = 64;
constexpr std::uint64_t kWelcomeBytes = 2 + 168;
constexpr std::uint64_t kLeastReadyBytes = 2 + 6 + 8 + 16;

/// True if the other end has received READY, or something that follows it.
bool handshake_has_ended(int fd) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return info.tcpi_bytes_acked >= kGreetingBytes + kWelcomeBytes + kLeastReadyBytes;
}

std::string ends_of(int fd) { return connection_text(fd, ConnectionEnd::acceptor); }

}  // namespace

FlowPlaces::FlowPlaces(OwnedFd nothing, OwnedFd spare)
    : nothing_(std::move(nothing)), spare_(std::move(spare)), door_(kHandshakesPerFlow) {}

Result<FlowPlaces> FlowPlaces::open() {
  OwnedFd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  OwnedFd spare(nothing ? fcntl(nothing.get(), F_DUPFD_CLOEXEC, 0) : -1);
  if (!spare)
    return system_error("control.bind", "a descriptor for the handshakes of flows", errno);
  return FlowPlaces(std::move(nothing), std::move(spare));
}

void FlowPlaces::accepted(int fd, std::string_view endpoint, Time now) {
  const std::size_t colon = endpoint.rfind(':');
  std::string ends = ends_of(fd);
  // Else it is closed already.
  if (colon == std::string_view::npos || !ends.ends_with(endpoint.substr(colon))) return;
  const Door::Verdict verdict = door_.enter(++last_, remote_source(fd), now);
  if (verdict.displaced) displace(*verdict.displaced);
  connections_.push_back({last_, fd, std::move(ends)});
}

void FlowPlaces::displace(Door::Number number) {
  const auto found = std::ranges::find(connections_, number, &Connection::number);
  if (found == connections_.end()) return;
  end(*found);
  connections_.erase(found);
}

void FlowPlaces::end(const Connection& connection) const {
  if (dup3(connection.fd, spare_.get(), O_CLOEXEC) < 0) return;  // it is closed already
  if (ends_of(spare_.get()) == connection.ends && !handshake_has_ended(spare_.get())) {
    (void)shutdown(spare_.get(), SHUT_RDWR);
    const std::string address = connection.ends.substr(0, connection.ends.find(" > "));
    refuse_stranger(nullptr, "control.bind", {address, address.substr(0, address.rfind(':'))},
                    kNoPlace);
  }
  (void)dup3(nothing_.get(), spare_.get(), O_CLOEXEC);
}

}  // namespace tendon::v0::detail
