// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/core/result.hpp>

#include "control/flows/step_sockets.hpp"

namespace tendon::v0::detail {

/// Step flows over ZeroMQ: XPUB to SUB, PUSH to PULL. Within one host they use sockets of the
/// runtime directory, which other users cannot enter. Between hosts they use tcp, always with
/// CURVE, and only for workers of the roster (ZapDoor). The numbers of the flows reveal losses that
/// ZeroMQ does not report: XPUB says nothing when a connection breaks, and PUSH takes messages that
/// nobody will read.
///
/// Owns:    one ZeroMQ context with its two threads; between hosts a ZapDoor, with one more. A
///          forked child touches none of them.
/// Errors:  too_many_open_files, permission_denied (the runtime directory), system.
/// Blocks:  its end: for at most a second while sent outputs leave.
[[nodiscard]] Result<std::shared_ptr<StepNetwork>> zmq_network();

}  // namespace tendon::v0::detail
