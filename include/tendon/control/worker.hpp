// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tendon/control/step.hpp>
#include <tendon/control/worker_options.hpp>
#include <tendon/control/worker_status.hpp>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/parallel_layout.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/core/result.hpp>
#include <tendon/group/group.hpp>
#include <tendon/runtime/context.hpp>

namespace tendon {
inline namespace v0 {

namespace detail {
class WorkerCore;
}

/// The groups of a worker in one roster.
struct WorkerGroups {
  std::shared_ptr<Group> world;
  std::shared_ptr<Group> tensor;
  std::shared_ptr<Group> kv;
  std::shared_ptr<Group> pipeline;  ///< its rank in this group is its stage
};

/// A process that receives steps from a Controller.
///
/// Example:
///   const ParallelLayout layout = ParallelLayout::make({.tensor = 2}).value();
///   Worker worker =
///       Worker::connect(context, "127.0.0.1:7000", layout, GlobalRank{1}, 60s).value();
///   for (;;) {
///     Result<Step> step = worker.next_step(Deadline::never());
///     Result<void> done = step ? compute(*step) : Result<void>(step.error());
///     if (done) done = worker.send_outputs({.schedule_id = step->inputs.schedule_id}, 5s);
///     if (done) continue;
///     const ErrorCode why = done.error().code;
///     if (why == ErrorCode::end_of_stream || why == ErrorCode::peer_lost) break;
///     worker.rebuild(done.error(), 60s).value();  // after all sequences were freed
///   }
///
/// Owns:    the worker pipe, three sockets, its groups, one thread for heartbeats. The controller's
///          questions are answered while the program computes, waits in a collective, or holds
///          Python's lock.
/// Threads: next_step(), send_outputs(), signal_microbatch(), rebuild() by one thread at a time,
///          else `busy`; the rest at any time.
/// Errors:  end_of_stream (the controller stopped), roster_closed (free all sequences, then
///          rebuild()), peer_lost (the controller died: end), timeout, message_too_large, forked.
/// Blocks:  calls with a Deadline, until then.
/// Cost:    four threads beside the program's own: the Context's, the heartbeats', ZeroMQ's two.
class TENDON_API Worker {
 public:
  /// Joins the controller at `address` as `rank`, then makes the groups and flows of the first
  /// roster with the others: returns when all of them are there. The Context needs its service
  /// thread (Progress::service), which answers while the program computes: invalid_argument under
  /// Progress::manual. Errors: permission_denied or invalid_argument in the controller's words (the
  /// rank is taken, another layout or payload_version).
  [[nodiscard]] static Result<Worker> connect(Context& context, std::string_view address,
                                              const ParallelLayout& layout, GlobalRank rank,
                                              Deadline deadline, WorkerOptions options = {});
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  [[nodiscard]] GlobalRank rank() const noexcept;
  [[nodiscard]] ParallelCoordinates place() const noexcept;
  [[nodiscard]] std::uint64_t roster() const;
  /// The groups of this roster; rebuild() makes new ones.
  [[nodiscard]] WorkerGroups groups() const;
  /// Whether the controller waits for outputs of this rank: tensor rank 0 of the last stage.
  [[nodiscard]] bool sends_outputs() const noexcept;
  /// Whether the controller listens to its microbatch signals. Only global rank 0 has this.
  [[nodiscard]] bool signals_microbatches() const noexcept;

  /// The next step, in the controller's order, each once.
  [[nodiscard]] Result<Step> next_step(Deadline deadline);
  /// Puts a step back: the next call of next_step() returns it again. See Pipe::give_back().
  void give_back(Step step);
  /// Ends the step. Every rank calls it; a rank that sends no outputs says only that it is done.
  [[nodiscard]] Result<void> send_outputs(const StepOutputs& outputs, Deadline deadline);
  /// Tells the controller that the first stage of this step is done. Only global rank 0 sends this;
  /// on other ranks the call does nothing.
  [[nodiscard]] Result<void> signal_microbatch(std::uint64_t schedule_id, Deadline deadline);
  /// Call it after roster_closed, or after a collective that failed. It reports why, waits until
  /// the controller has a full roster again, and enters it with new groups and flows.
  [[nodiscard]] Result<void> rebuild(const Error& cause, Deadline deadline);

  /// Sets WorkerStatus::load from now on.
  void set_load(double load);
  [[nodiscard]] FlowStats stats() const;
  /// Leaves in order: the controller closes the roster.
  void leave(std::string_view reason);

 private:
  explicit Worker(std::shared_ptr<detail::WorkerCore> core);
  std::shared_ptr<detail::WorkerCore> core_;
};

}  // namespace v0
}  // namespace tendon
