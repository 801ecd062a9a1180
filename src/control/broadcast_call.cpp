// SPDX-License-Identifier: Apache-2.0
#include "control/broadcast_call.hpp"

#include "control/controller_core.hpp"

namespace tendon::v0::detail {

BroadcastCall::BroadcastCall(const Controller& controller, const StepInputs& inputs)
    : core_(controller.core_), call_{.inputs = inputs} {}

BroadcastCall::~BroadcastCall() {
  if (!core_->forked()) core_->end(call_);
}

Result<void> BroadcastCall::attempt(Deadline deadline) { return core_->broadcast(call_, deadline); }

}  // namespace tendon::v0::detail
