// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <tendon/control/limits.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon {
inline namespace v0 {

/// One step, as a controller sends it to all of its workers.
///
/// Owns:    shares of its bytes and tensors.
/// Threads: a value.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    no copy.
struct StepInputs {
  /// Greater than those of all steps before it.
  std::uint64_t schedule_id = 0;
  /// At most kMaxStepPayloadBytes. Tendon does not look into it: a serialized
  /// `tendon.v1.StepInputs` (proto/tendon/v1/step.proto), or a message of yours.
  Storage payload = {};
  /// Tensors beside the payload, on pipes beside the worker pipes; may be empty. broadcast() copies
  /// them once, and all workers of the controller's host read that copy: a worker may not write
  /// them. To another host they are sent once, and a worker there passes them on to those beside
  /// it. Their memory is free when the last worker has dropped them.
  TensorDict tensors = {};
};

/// A step as a worker gets it.
struct Step {
  StepInputs inputs = {};
  /// Set by Controller::cancel_step() while the step is at work.
  std::shared_ptr<const std::atomic<bool>> cancel_flag = {};

  [[nodiscard]] bool cancelled() const noexcept {
    return cancel_flag != nullptr && cancel_flag->load(std::memory_order_relaxed);
  }
};

/// The outputs of one rank for a step.
struct StepOutputs {
  std::uint64_t schedule_id = 0;
  GlobalRank rank = {};  ///< of the sender; set by collect()
  Storage payload = {};
  /// Any number that must be the same on all ranks that send outputs, such as a hash of the tokens;
  /// else collect() returns `divergence`. 0: nothing to compare.
  std::uint64_t agreement = 0;
};

}  // namespace v0
}  // namespace tendon
