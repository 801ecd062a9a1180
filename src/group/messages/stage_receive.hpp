// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/completion.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/group/group.hpp>

#include "group/epochs/group_core.hpp"
#include "group/messages/stage_words.hpp"
#include "runtime/awaited.hpp"
#include "runtime/context_clients.hpp"

namespace tendon::v0::detail {

/// A recv_from_stage() under way.
///
///     header --it says `whole`--> whole --> exchange
///     header --> exchange: this member's chunks arrive from its counterpart, each is passed on to
///                the others of the stage, whose chunks arrive from them
///     exchange --all has arrived and been passed on--> over
///     any --an error, cancel(), expire()--> ending --nothing of the tensor is touched--> over
///
/// The members of the stage send each other their chunks by message, not by a collective. The
/// stage's own collectives may therefore run meanwhile, and a late member delays none of them.
///
/// Owns:    shares of the tensor and of both groups.
/// Threads: thread-safe. Its lock is taken before every lock of a group.
/// Errors:  those of group messages. An error ends the stage's epoch, whose members would wait for
///          chunks that this one does not pass on.
/// Blocks:  run() and drive(), until the deadline.
/// Cost:    a message for each chunk and member of the stage.
class StageReceive final : public Awaited<void>, public Work {
 public:
  StageReceive(std::shared_ptr<GroupCore> stages, std::shared_ptr<GroupCore> tensor_group,
               Tensor tensor, GroupRank peer);

  /// Receives all of it in this thread; call once. The number of the transfer, by which the stage's
  /// members know each other's chunks, counts their calls so far, which they make in one order.
  [[nodiscard]] Result<void> run(Deadline deadline);
  /// Call once, instead of run(): receives as much as possible without a wait. A Work does the
  /// rest.
  void start();

  // CompletionBase
  void drive(Deadline deadline) override;
  void cancel() override;
  void expire() override;
  void abandon() override {}
  // Work
  bool progress() override;
  [[nodiscard]] bool has_input() const noexcept override;

 private:
  enum class Phase : std::uint8_t { header, whole, exchange, ending, over };
  /// The chunks of one member's share.
  struct Lane {
    std::uint32_t member = 0;
    std::uint64_t posted_count = 0;  ///< chunks that were asked for
    std::uint64_t taken_count = 0;
    std::deque<Completion<Received>> posted{};
  };

  [[nodiscard]] From counterpart(std::uint32_t tag) const { return {peer_, tag}; }
  [[nodiscard]] std::shared_ptr<StageReceive> self() {
    return std::static_pointer_cast<StageReceive>(shared_from_this());
  }
  void go_on();
  /// False: nothing more can be done now.
  bool step() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<bool> advance() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> take_header() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> begin_exchange() TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<bool> advance(Lane& lane) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> post(Lane& lane) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> pass_on(std::uint64_t chunk) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<bool> advance_sends() TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool whole_is_enough() const TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::string missing() const TENDON_REQUIRES(mutex_);
  void stop(Error error) TENDON_REQUIRES(mutex_);
  void end(Result<void> result) TENDON_REQUIRES(mutex_);

  const std::shared_ptr<GroupCore> stages_;
  const std::shared_ptr<GroupCore> tensor_group_;
  const std::shared_ptr<Epoch> stages_epoch_;
  const std::shared_ptr<Epoch> own_epoch_;
  const Tensor tensor_;
  const GroupRank peer_;

  mutable Mutex mutex_;
  Phase phase_ TENDON_GUARDED_BY(mutex_) = Phase::header;
  std::uint32_t number_ TENDON_GUARDED_BY(mutex_) = 0;
  Tensor words_ TENDON_GUARDED_BY(mutex_) = StageHeader().packed();
  StageHeader header_ TENDON_GUARDED_BY(mutex_);
  Tensor packed_ TENDON_GUARDED_BY(mutex_);
  // The header, then a whole tensor.
  std::optional<Completion<Received>> first_ TENDON_GUARDED_BY(mutex_);
  std::deque<Lane> lanes_ TENDON_GUARDED_BY(mutex_);
  std::deque<Completion<void>> sends_ TENDON_GUARDED_BY(mutex_);
  std::optional<Error> failure_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
