// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <tendon/pipe/listener.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Listener.
struct ListenerHandle {
  std::shared_ptr<Listener> listener;
  nb::object context;
};

inline constexpr const char* kListenDoc =
    "Listens at an address and returns the Listener.\n\n"
    "address: '127.0.0.1:0' (any free port), 'unix:/path', 'unix:@name'; what\n"
    "other machines can reach needs a security, or profile='plaintext'.\n"
    "security: a tendon.Security; then peers without a proof are refused.\n\n"
    "Raises AddressInUse, PermissionDenied, Unreachable.";
/// `Context.listen`.
[[nodiscard]] ListenerHandle bind_listener_to(nb::object context, const std::string& address,
                                              const std::string& profile,
                                              const nb::object& security);

}  // namespace tendon::python
