// SPDX-License-Identifier: Apache-2.0
// The kernel's word on an endpoint of Zenoh: Zenoh itself does not pass it on.
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
    taken,    ///< a program takes connections there
    refused,  ///< nobody does
    unknown,  ///< there was no answer in time, or the host was not looked up
  };
  State state = State::unknown;
  std::string why;  ///< there is no connection: "connection refused"
  /// The program that listens at a unix socket, by SO_PEERCRED; nothing where it is not known.
  std::optional<pid_t> holder;
};

/// Connects to each, all at once, and says nothing there. Blocks: until the deadline at most.
[[nodiscard]] std::vector<EndpointLook> look_at_endpoints(std::span<const std::string> endpoints,
                                                          Deadline deadline);

/// Why nobody can listen there now; nothing where the kernel lets this process do it. Errors:
/// address_in_use, with the process that holds it where the kernel tells, permission_denied,
/// invalid_argument (no address of this host), and those of bind().
[[nodiscard]] std::optional<Error> why_not_listening(std::string_view endpoint);

}  // namespace tendon::v0::detail
