// SPDX-License-Identifier: Apache-2.0
#include "control/broadcast_call.hpp"

#include "control/controller_core.hpp"

namespace tendon::v0::detail {

BroadcastCall::BroadcastCall(const Controller& controller, const StepInputs& inputs)
    : BroadcastCall(ControllerCore::of(controller), inputs) {}

BroadcastCall::~BroadcastCall() {
  if (!core_->forked()) core_->end(*this);
}

Result<void> BroadcastCall::attempt(Deadline deadline) {
  TENDON_CHECK(core_->check_process("control.broadcast"));
  return core_->broadcast(*this, deadline);
}

}  // namespace tendon::v0::detail
