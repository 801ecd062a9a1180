// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tendon/fabric/responder.hpp>

#include "tasks.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Responder. Its end closes `tasks` after the responder, when the handlers
/// have returned.
struct ResponderHandle {
  nb::object node;
  std::shared_ptr<Tasks> tasks;
  std::shared_ptr<Responder> responder;
};

inline constexpr const char* kResponderDoc =
    "Answers calls on one key.\n\n"
    "key: 'arm/plan', without wildcards. Several nodes may answer on one.\n"
    "handler: handler(request) returns the answer: a mapping, as for\n"
    "Publisher.publish, or None for an empty one. It may be an async function, which\n"
    "runs in an event loop of its own. What it raises is an exception at the caller:\n"
    "one of tendon's as it is, mostly; any other as HandlerFailed.\n"
    "handlers: how many run at once, each on a thread of Python.\n"
    "waiting: requests that wait for one of these; a further one gets ServerBusy.";
/// `Node.responder`.
[[nodiscard]] ResponderHandle declare_responder(nb::object node, const std::string& key,
                                                nb::object handler, std::uint32_t handlers,
                                                std::uint32_t waiting);

}  // namespace tendon::python
