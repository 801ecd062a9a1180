// SPDX-License-Identifier: Apache-2.0
// The tensors of a step are sent once to each host that is not the controller's: to the *first*
// worker there, the one with the lowest rank, which passes them on to the others, its *followers*.
//
//   follower                          first
//     |--- connect, RelayJoin{rank} ---->|   refused: a stranger, another roster
//     |<-- RelayWelcome -----------------|
//     |    (Ready{relay = first} to the controller, which sends it no tensors then)
//     |<-- StepTensors, TensorDict ------|   for each step that has some
//
// A follower that finds no first one in time asks the controller for its own copies: Ready without
// `relay`. When the pipe between the two ends while the roster runs, the roster ends.
//
// A worker that gets tensors from the controller follows it in the same words, so that no word on
// the worker pipe waits behind tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/rank.hpp>
#include <tendon/pipe/listener.hpp>
#include <vector>

#include "control/flows/step_message.hpp"
#include "control/relay/reception.hpp"
#include "control/relay/worker_pipe.hpp"

namespace tendon::v0::detail {

/// The origin of its errors and warnings.
inline constexpr std::string_view kRelay = "control.relay";

/// The run and roster of a relay: the peer of its pipe must name the same.
struct RelayPlace {
  RosterId roster;
  GlobalRank rank;  ///< this worker's
};

/// The end of the first worker.
///
/// Owns:    a listener, a pipe to each follower.
/// Threads: safe everywhere.
/// Errors:  none: a follower that cannot be served loses its pipe, and knows by that.
/// Blocks:  never.
/// Cost:    pass_on(): one copy into a slot that all followers read.
class TensorRelay final : public PipeListener, public std::enable_shared_from_this<TensorRelay> {
 public:
  /// Admits only these followers, each once.
  TensorRelay(RelayPlace place, std::set<GlobalRank> followers)
      : place_(std::move(place)), expected_(std::move(followers)) {}

  /// Accepts followers from now on.
  void serve(Listener listener) { reception_.open(std::move(listener), weak_from_this()); }
  void pass_on(std::uint64_t schedule_id, const TensorDict& tensors) TENDON_EXCLUDES(mutex_);
  /// Admits no further follower, and ends the pipes once all tensors have left.
  void end() TENDON_EXCLUDES(mutex_);

  void on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) override
      TENDON_EXCLUDES(mutex_);
  void on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) override;
  void on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) override
      TENDON_EXCLUDES(mutex_);

 private:
  [[nodiscard]] std::optional<Error> let_in(const std::shared_ptr<WorkerPipe>& pipe,
                                            const v1::Word& word) TENDON_REQUIRES(mutex_);

  const RelayPlace place_;
  Reception reception_{{ErrorCode::server_busy, kRelay, "others came that said nothing either"}};
  Mutex mutex_;
  std::set<GlobalRank> expected_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<WorkerPipe>> followers_ TENDON_GUARDED_BY(mutex_);
};

/// The end of a follower; or that of a worker that gets tensors from the controller, on a pipe
/// beside the worker pipe.
///
/// Owns:    the pipe to the first worker, or to the controller.
/// Threads: safe everywhere. Its callbacks run on the service thread.
/// Errors:  follow(): those of Pipe::connect(), timeout, protocol_violation.
/// Blocks:  follow(): until its deadline.
/// Cost:    none per step beyond the message.
class RelayedTensors final : public PipeListener,
                             public std::enable_shared_from_this<RelayedTensors> {
 public:
  struct Calls {
    std::function<void(std::uint64_t schedule_id, TensorDict tensors)> came;
    std::function<void()> ended;  ///< once, unless end() was called before
  };
  RelayedTensors(RelayPlace place, Calls calls)
      : place_(std::move(place)), calls_(std::move(calls)) {}

  /// Joins the first worker or the controller, which is at the other end of `pipe`.
  [[nodiscard]] Result<void> follow(Pipe pipe, Deadline deadline) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] bool has_ended() const { return why_ended().has_value(); }
  /// The reason why nothing more arrives.
  [[nodiscard]] std::optional<Error> why_ended() const TENDON_EXCLUDES(mutex_);
  void end() TENDON_EXCLUDES(mutex_);

  void on_word(const std::shared_ptr<WorkerPipe>& pipe, v1::Word word) override
      TENDON_EXCLUDES(mutex_);
  void on_tensors(const std::shared_ptr<WorkerPipe>& pipe, TensorDict tensors) override
      TENDON_EXCLUDES(mutex_);
  void on_end(const std::shared_ptr<WorkerPipe>& pipe, const Error& why) override
      TENDON_EXCLUDES(mutex_);

 private:
  enum class State : std::uint8_t { joining, following, ended };

  const RelayPlace place_;
  const Calls calls_;
  mutable Mutex mutex_;
  CondVar changed_;
  State state_ TENDON_GUARDED_BY(mutex_) = State::joining;
  Error why_ TENDON_GUARDED_BY(mutex_);  // ended
  std::shared_ptr<WorkerPipe> pipe_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t next_id_ TENDON_GUARDED_BY(mutex_) = 0;  // the step of the next TensorDict
};

}  // namespace tendon::v0::detail
