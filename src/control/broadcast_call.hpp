// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/control/controller.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>

#include "control/machine/step_turns.hpp"

namespace tendon::v0::detail {

class ControllerCore;

/// A call of Controller::broadcast() from its beginning to its end. It may be attempted more than
/// once, as Python does to look at signals: it keeps its turn and its copies meanwhile.
///
/// Owns:    its turn among such calls, a copy of the tensors. The inputs outlive it.
/// Threads: one at a time.
/// Errors:  those of broadcast().
/// Blocks:  attempt(): until the deadline.
/// Cost:    as broadcast().
class BroadcastCall {
 public:
  BroadcastCall(const Controller& controller, const StepInputs& inputs);
  BroadcastCall(const BroadcastCall&) = delete;
  BroadcastCall& operator=(const BroadcastCall&) = delete;
  ~BroadcastCall();

  [[nodiscard]] Result<void> attempt(Deadline deadline);

 private:
  const std::shared_ptr<ControllerCore> core_;
  StepCall call_;
};

}  // namespace tendon::v0::detail
