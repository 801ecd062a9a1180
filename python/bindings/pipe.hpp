// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <stop_token>
#include <string>
#include <tendon/pipe/pipe.hpp>

#include "context.hpp"
#include "same_again.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Pipe. A send that continues after Ctrl-C shares the pipe.
struct PipeHandle {
  std::shared_ptr<Pipe> pipe;
  nb::object context;
  /// Notes of the last send of a dict; null while a send uses it.
  mutable std::shared_ptr<SameAgain> same_again = nullptr;
};

[[nodiscard]] PipeHandle make_pipe(Pipe pipe, nb::object context);

inline constexpr const char* kConnectDoc =
    "Connects to a listener and returns the Pipe.\n\n"
    "address: '127.0.0.1:7000', '[::1]:7000', 'host:7000', 'unix:/path'.\n"
    "timeout: seconds, None for ever; by default that of the context.\n"
    "profile: 'local' (the peer proves to be this user on this host) or\n"
    "'plaintext' (anybody, unprotected; both ends must say it).\n"
    "security: a tendon.Security for an encrypted link, which both ends must have.\n"
    "wait: dials until the timeout while nobody listens there; False: one answer is enough.\n\n"
    "Raises Unreachable, Timeout, PermissionDenied, AuthenticationFailed, VersionMismatch,\n"
    "ServerBusy.";
/// `Context.connect`.
[[nodiscard]] PipeHandle connect_pipe(nb::object context, const std::string& address,
                                      nb::object timeout, const Security& security, bool wait,
                                      std::stop_source stop = {});

}  // namespace tendon::python
