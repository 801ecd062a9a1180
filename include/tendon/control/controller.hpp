// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/control/controller_options.hpp>
#include <tendon/control/step.hpp>
#include <tendon/control/worker_status.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/parallel_layout.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>
#include <tendon/runtime/context.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

namespace detail {
class BroadcastCall;
class ControllerCore;
}  // namespace detail

/// A controller sends steps to many workers and collects their outputs.
///
/// Example:
///   const ParallelLayout layout = ParallelLayout::make({.tensor = 2}).value();
///   Controller controller = Controller::bind(context, layout, "127.0.0.1:7000").value();
///   controller.wait_for_workers(60s).value();
///   controller.broadcast({.schedule_id = 1, .tensors = batch}, 5s).value();
///   Result<std::vector<StepOutputs>> outputs = controller.collect(1, 30s);
///   if (!outputs && outputs.error().code == ErrorCode::worker_lost)
///     controller.rebuild(120s).value();  // the step is void; broadcast it again under a new id
///   controller.stop("done", 10s).value();
///
/// Two ways lead to each worker. The *worker pipe* is open for its whole life: the controller hears
/// there what the worker waits for, and of its death. Steps travel over three flows of ZeroMQ:
/// inputs to all (PUB), outputs and microbatch signals back (PULL). Every message of a flow is
/// numbered, kept until it is applied, and sent again on the worker pipe if it was lost.
///
/// The set of workers has a number, the *roster*. When one is lost the roster is closed: its steps
/// are void, and the others wait for rebuild(), which forms the next one with a replacement.
///
/// Owns:    a listener, the worker pipes, three sockets, one thread for heartbeats, ZeroMQ's two.
///          With `plaintext` a fourth socket, and a thread that lets in workers of the roster.
/// Threads: safe everywhere; a caller that waits reads the sockets for all.
/// Errors:  worker_lost (a worker died or failed; names rank, host and cause), roster_closed (a
///          call that needs a running roster), timeout (names the ranks that are behind),
///          divergence, message_too_large, invalid_argument, forked.
/// Blocks:  calls with a Deadline, until then.
/// Cost:    for a step: one message, whatever the number of workers, one from each rank that sends
///          outputs, and a word from each of the others.
class TENDON_API Controller {
 public:
  /// Listens for workers at `address`, as Listener::bind(). The Context needs its service thread:
  /// invalid_argument under Progress::manual.
  [[nodiscard]] static Result<Controller> bind(Context& context, const ParallelLayout& layout,
                                               std::string_view address,
                                               ControllerOptions options = {});
  Controller(Controller&&) noexcept;
  Controller& operator=(Controller&&) noexcept;
  Controller(const Controller&) = delete;
  Controller& operator=(const Controller&) = delete;
  ~Controller();

  [[nodiscard]] std::string address() const;
  [[nodiscard]] const ParallelLayout& layout() const& noexcept;
  const ParallelLayout& layout() const&& = delete;

  /// Waits until each rank has a worker, forms the groups and flows, and waits until a probe has
  /// reached each of them.
  [[nodiscard]] Result<void> wait_for_workers(Deadline deadline);
  /// Forms the next roster after worker_lost. Waits for replacements, and until the survivors have
  /// freed what they held. Earlier steps are void; no step is sent a second time.
  [[nodiscard]] Result<void> rebuild(Deadline deadline);

  /// Sends a step to all workers. At most pipeline stages + 1 are in flight, and at most so many
  /// wait for any rank to take them. Beyond that it waits for outputs, which stay for collect(),
  /// and for the ranks that are behind, which `timeout` names. Calls of several threads take turns
  /// in the order in which they began, and their ids must rise in it: else invalid_argument, before
  /// anything is copied. On an error no worker has the step.
  [[nodiscard]] Result<void> broadcast(const StepInputs& inputs, Deadline deadline);
  /// The outputs of a step, by rank: one from each KV-parallel rank of the last stage. Steps may be
  /// collected in any order, each once.
  [[nodiscard]] Result<std::vector<StepOutputs>> collect(std::uint64_t schedule_id,
                                                         Deadline deadline);
  /// Puts collected outputs back; they can be collected again: see Pipe::give_back().
  void give_back(std::vector<StepOutputs> outputs);
  /// Returns when the first stage has passed on its part of this step.
  [[nodiscard]] Result<void> wait_for_microbatch(std::uint64_t schedule_id, Deadline deadline);
  /// Tells every worker that this step is no longer wanted, and waits until each confirms:
  /// Step::cancelled() is true there. Its outputs still arrive.
  [[nodiscard]] Result<void> cancel_step(std::uint64_t schedule_id, Deadline deadline);

  /// Asks a worker on its pipe for its status, whatever its program does meanwhile.
  [[nodiscard]] Result<WorkerStatus> ask(GlobalRank rank, Deadline deadline);
  [[nodiscard]] ControllerStatus status() const;
  [[nodiscard]] FlowStats stats() const;

  /// Waits until no step is in flight; outputs stay for collect(). No step is accepted meanwhile.
  [[nodiscard]] Result<void> drain(Deadline deadline);
  /// Tells all workers to end after the steps that they have, and waits until their pipes have
  /// ended. `timeout` names those that are left. The destructor tells them, and does not wait.
  [[nodiscard]] Result<void> stop(std::string_view reason, Deadline deadline);

 private:
  friend class detail::BroadcastCall;
  explicit Controller(std::shared_ptr<detail::ControllerCore> core);
  std::shared_ptr<detail::ControllerCore> core_;
};

}  // namespace v0
}  // namespace tendon
