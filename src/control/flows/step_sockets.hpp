// SPDX-License-Identifier: Apache-2.0
// The three step flows of one roster, as the controller and a worker see them: ZeroMQ, or a double
// in memory that loses messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/session/profile.hpp>
#include <vector>

#include "tendon/v1/control.pb.h"

namespace tendon::v0::detail {

/// The places of a roster's flows, as the controller states them: "ipc:" and the name of a socket
/// in the runtime directory, or "tcp:" and a port of the host at which the controller was reached.
/// The worker makes a path or an address of it, and opens none that another process chose.
struct StepEndpoints {
  std::string inputs;
  std::string outputs;
  std::string microbatches;
  std::string server_key;  ///< between hosts: CURVE's, 40 characters of Z85
};

/// "10.0.0.1" of "10.0.0.1:7100", "[::1]" of "[::1]:7100"; empty for a unix socket.
[[nodiscard]] inline std::string host_of(std::string_view address) {
  if (address.starts_with("unix:")) return {};
  return std::string(address.substr(0, address.rfind(':')));
}

/// The keys of a worker, for one roster; 40 characters of Z85 each.
struct CurveKeys {
  std::string public_key;
  std::string secret_key;
};

/// The place where a controller binds its flows.
struct StepPlace {
  std::string host;                      ///< empty: the runtime directory
  Profile profile = Profile::local;      ///< as of the controller: may `host` be routable?
  std::vector<std::string> worker_keys;  ///< public ones of the workers that may connect
  /// StepInputs that may wait for one subscriber; it misses further ones.
  std::size_t queued_inputs = 64;
  /// Subscriptions to StepInputs; beyond them its connections are made anew, and those of strangers
  /// end.
  std::size_t most_subscriptions = 64;
};

/// Threads: publish() by one, the others by one at a time.
class ControllerSockets {
 public:
  virtual ~ControllerSockets() = default;
  [[nodiscard]] virtual StepEndpoints endpoints() const = 0;
  /// Sends to all that have subscribed, except those that do not read. Never waits.
  [[nodiscard]] virtual Result<void> publish(Bytes message) = 0;
  /// Takes a message of either flow that leads here.
  [[nodiscard]] virtual std::optional<Storage> take() = 0;
  /// Waits for a message, a readable `wake_fd`, or the deadline.
  virtual void wait(int wake_fd, Deadline deadline) = 0;
};

/// Threads: one at a time.
/// Errors:  timeout from send(): the controller takes nothing, and the queue is full.
class WorkerSockets {
 public:
  virtual ~WorkerSockets() = default;
  /// Sends on FLOW_STEP_OUTPUTS or FLOW_STEP_MICROBATCH_OUTPUTS.
  [[nodiscard]] virtual Result<void> send(v1::Flow flow, Bytes message, Deadline deadline) = 0;
  [[nodiscard]] virtual std::optional<Storage> take() = 0;
  virtual void wait(int wake_fd, Deadline deadline) = 0;
  /// Makes a new connection, because announced messages do not arrive.
  [[nodiscard]] virtual Result<void> reconnect(v1::Flow flow) = 0;
};

/// Makes the sockets. One for the life of a Controller or Worker.
class StepNetwork {
 public:
  virtual ~StepNetwork() = default;
  [[nodiscard]] virtual Result<std::shared_ptr<ControllerSockets>> bind(const StepPlace& place) = 0;
  /// `host` is that at which the controller was reached.
  [[nodiscard]] virtual Result<std::shared_ptr<WorkerSockets>> connect(
      const StepEndpoints& endpoints, const std::string& host, const CurveKeys& keys) = 0;
  /// Makes fresh keys.
  [[nodiscard]] virtual Result<CurveKeys> make_keys() = 0;
};

}  // namespace tendon::v0::detail
