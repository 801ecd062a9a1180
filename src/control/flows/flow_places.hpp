// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"
#include "runtime/door.hpp"

namespace tendon::v0::detail {

/// The last connections that ZeroMQ accepted at one tcp socket. ZeroMQ ends a handshake after
/// kFlowHandshakeTimeout but does not limit their number, so silent connections could take every
/// descriptor of the process. A connection that is displaced here (Door) is shut down if its
/// handshake has not ended; ZeroMQ then closes it.
///
/// Owns:    two descriptors; those of the connections belong to ZeroMQ.
/// Threads: one at a time.
/// Errors:  open(): resource_exhausted without a descriptor.
/// Blocks:  never.
/// Cost:    some system calls for a connection.
class FlowPlaces {
 public:
  using Time = Door::Time;

  [[nodiscard]] static Result<FlowPlaces> open();
  /// Notes ZeroMQ's word that it accepted a connection at this endpoint, "tcp://10.0.0.2:7000",
  /// under this number, which another descriptor may have by now.
  void accepted(int fd, std::string_view endpoint, Time now);

 private:
  struct Connection {
    Door::Number number;
    int fd;
    std::string ends;  // both addresses: no two living connections have the same
  };

  FlowPlaces(OwnedFd nothing, OwnedFd spare);
  void displace(Door::Number number);
  void end(const Connection& connection) const;

  // A descriptor of ZeroMQ's is read through a duplicate, which nobody else closes. A number for it
  // is reserved, because descriptors may be short just then.
  OwnedFd nothing_;
  OwnedFd spare_;
  Door door_;
  std::deque<Connection> connections_;
  Door::Number last_ = 0;
};

}  // namespace tendon::v0::detail
