// SPDX-License-Identifier: Apache-2.0
// The three step flows of one roster, as the controller and a worker see them: ZeroMQ, or a double
// in memory that loses messages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>

#include "tendon/v1/control.pb.h"

namespace tendon::v0::detail {

/// Where the flows of a roster are.
struct StepEndpoints {
  std::string inputs;
  std::string outputs;
  std::string microbatches;
};

/// Threads: publish() by one, the others by one at a time.
/// Errors:  timeout from publish(): a worker takes nothing, and its queue is full.
class ControllerSockets {
 public:
  virtual ~ControllerSockets() = default;
  [[nodiscard]] virtual StepEndpoints endpoints() const = 0;
  /// To all that have subscribed. Never waits.
  [[nodiscard]] virtual Result<void> publish(Bytes message) = 0;
  /// A message of either flow that leads here.
  [[nodiscard]] virtual std::optional<Storage> take() = 0;
  /// Until there is a message, `wake_fd` is readable, or the deadline passes.
  virtual void wait(int wake_fd, Deadline deadline) = 0;
};

/// Threads: one at a time.
/// Errors:  timeout from send(): the controller takes nothing, and the queue is full.
class WorkerSockets {
 public:
  virtual ~WorkerSockets() = default;
  /// On FLOW_STEP_OUTPUTS or FLOW_STEP_MICROBATCH_OUTPUTS.
  [[nodiscard]] virtual Result<void> send(v1::Flow flow, Bytes message, Deadline deadline) = 0;
  [[nodiscard]] virtual std::optional<Storage> take() = 0;
  virtual void wait(int wake_fd, Deadline deadline) = 0;
  /// What was announced does not come this way: makes a new connection.
  [[nodiscard]] virtual Result<void> reconnect(v1::Flow flow) = 0;
};

/// Makes them. One for the life of a Controller or Worker.
class StepNetwork {
 public:
  virtual ~StepNetwork() = default;
  [[nodiscard]] virtual Result<std::shared_ptr<ControllerSockets>> bind() = 0;
  [[nodiscard]] virtual Result<std::shared_ptr<WorkerSockets>> connect(
      const StepEndpoints& endpoints) = 0;
};

}  // namespace tendon::v0::detail
