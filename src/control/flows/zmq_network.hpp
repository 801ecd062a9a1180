// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/result.hpp>

#include "control/flows/step_sockets.hpp"

namespace tendon::v0::detail {

/// Step flows over ZeroMQ: XPUB to SUB, PUSH to PULL. Within one host in sockets of the runtime
/// directory, which other users cannot enter; between hosts over tcp, always with CURVE, and only
/// for workers of the roster (ZapDoor). What ZeroMQ does not say is found by the numbers of the
/// flows: XPUB says nothing when a connection breaks, and PUSH takes messages that nobody will
/// read.
///
/// Owns:    one ZeroMQ context with its two threads; between hosts a ZapDoor, with one more. In a
///          forked child nothing of it is touched.
/// Errors:  too_many_open_files, permission_denied (the runtime directory), system.
/// Blocks:  its end: for at most a second while outputs that were sent leave.
[[nodiscard]] Result<std::shared_ptr<StepNetwork>> zmq_network();

}  // namespace tendon::v0::detail
