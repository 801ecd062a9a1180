// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <tendon/control/controller.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <utility>

namespace tendon::v0::detail {

class ControllerCore;
struct KeptBody;

/// A call of Controller::broadcast() from its beginning to its end. It may be attempted more than
/// once, as Python does to look at signals: it keeps its turn and what it has copied meanwhile.
///
/// Owns:    its turn among such calls, a copy of the tensors. The inputs outlive it.
/// Threads: one at a time.
/// Errors:  those of broadcast().
/// Blocks:  attempt(): until the deadline.
/// Cost:    as broadcast().
class BroadcastCall {
 public:
  BroadcastCall(const Controller& controller, const StepInputs& inputs);
  BroadcastCall(std::shared_ptr<ControllerCore> core, const StepInputs& inputs)
      : core_(std::move(core)), inputs_(inputs) {}
  BroadcastCall(const BroadcastCall&) = delete;
  BroadcastCall& operator=(const BroadcastCall&) = delete;
  ~BroadcastCall();

  [[nodiscard]] Result<void> attempt(Deadline deadline);

 private:
  friend class ControllerCore;

  const std::shared_ptr<ControllerCore> core_;
  const StepInputs& inputs_;
  bool has_turn_ = false;  // it has joined the line, under the core's lock
  std::shared_ptr<const KeptBody> tensors_;
};

}  // namespace tendon::v0::detail
