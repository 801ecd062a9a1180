// SPDX-License-Identifier: Apache-2.0
// The kernel's word on an endpoint of Zenoh, which Zenoh itself does not pass on.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/error.hpp>
#include <vector>

namespace tendon::v0::detail {

struct EndpointLook {
  enum class State : std::uint8_t {
    taken,    ///< a program accepts connections there
    refused,  ///< nobody does
    unknown,  ///< there was no answer in time, or the host was not looked up
  };
  State state = State::unknown;
  std::string why;  ///< the reason for a missing connection: "connection refused"
  /// The program that listens at a unix socket, by SO_PEERCRED; empty if it is not known.
  std::optional<pid_t> holder;
};

/// Connects to each, all at once, and sends nothing. Blocks: until the deadline at most.
[[nodiscard]] std::vector<EndpointLook> look_at_endpoints(std::span<const std::string> endpoints,
                                                          Deadline deadline);

/// The reason why nobody can listen there now; empty if the kernel lets this process do it. Errors:
/// address_in_use, with the process that holds it if the kernel tells, permission_denied,
/// invalid_argument (no address of this host), and those of bind().
[[nodiscard]] std::optional<Error> why_not_listening(std::string_view endpoint);

}  // namespace tendon::v0::detail
