// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tendon/core/mutex.hpp>
#include <tendon/group/group.hpp>
#include <vector>

#include "group/boards/rounds.hpp"
#include "group/epochs/call_queue.hpp"
#include "group/epochs/epoch_end.hpp"
#include "group/epochs/given_words.hpp"
#include "group/epochs/message_box.hpp"
#include "group/epochs/message_waits.hpp"
#include "group/epochs/seats.hpp"
#include "group/membership/early_words.hpp"
#include "group/membership/mesh.hpp"

namespace tendon::v0::detail {

/// One member's share of a group: its epochs, and its reaction to a loss.
///
///     entering --`ready` of all members of the view--> running
///     running --an operation failed, a member was lost, somebody said `abort`--> failed
///     failed --shrink()--> entering, in a view without the lost members
///     running, failed --grow(), rebuild()--> entering, in a view with the newcomers
///
/// Owns:    the epoch, the call queue, a share of the mesh.
/// Threads: thread-safe. Lock order: a link's receive lock; the call queue's; state_mutex_; an
///          epoch's inbox.
/// Errors:  those of Group.
/// Blocks:  calls with a deadline.
/// Cost:    one lock an operation.
class GroupCore final : public MeshListener,
                        public CallQueueOwner,
                        public Timed,
                        public std::enable_shared_from_this<GroupCore> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<GroupCore>> join(std::shared_ptr<ContextCore> context,
                                                               const Rendezvous& rendezvous,
                                                               const GroupOptions& options,
                                                               Deadline deadline);
  [[nodiscard]] static const std::shared_ptr<GroupCore>& of(const Group& group) {
    return group.core_;
  }
  /// Makes the group `id` of those places of the mesh, one of them this member's, before its first
  /// epoch. `view` is empty for a member that takes another's place.
  GroupCore(std::shared_ptr<Mesh> mesh, std::uint64_t id, std::string name,
            ByPlace<MeshPlace> mesh_places, const View& view, Minority minority);

  enum class Of : std::uint8_t {
    everybody,    ///< of the last epoch, or an error that names the lost members
    those_left,   ///< the remaining members of the last epoch
    those_here,   ///< the remaining members, and the newcomers in the places of others
    every_place,  ///< waits until each place has a member
  };
  /// The next epoch: each of its members calls this.
  Result<void> enter(Deadline deadline, Of members, Fence fence, std::string_view where);
  /// Called when the handle is dropped.
  void leave();
  Result<std::shared_ptr<GroupCore>> subgroup(std::span<const GroupRank> ranks, Deadline deadline,
                                              std::string_view name);

  [[nodiscard]] std::shared_ptr<Epoch> epoch() const;
  [[nodiscard]] const std::shared_ptr<Mesh>& mesh() const noexcept { return mesh_; }
  [[nodiscard]] const std::shared_ptr<ContextCore>& context() const noexcept {
    return mesh_->context();
  }
  /// `forked`, for calls that read the epoch first.
  [[nodiscard]] Result<void> check_process(std::string_view where) const {
    return context()->forked() ? context()->usable(where) : Result<void>();
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] std::uint64_t epochs_entered() const noexcept { return epochs_entered_.load(); }
  /// True if the epoch has ended, or its end is known.
  [[nodiscard]] bool has_ended() const noexcept { return !end_.runs(); }
  [[nodiscard]] CallQueue& calls() noexcept { return calls_; }
  [[nodiscard]] MessageBox& messages() noexcept { return messages_; }
  [[nodiscard]] MessageWaits& waits() noexcept { return waits_; }
  /// nullopt: that process has no place in this group.
  [[nodiscard]] std::optional<GroupPlace> place_of(MeshPlace mesh_place) const;
  /// lost(), once all that it sent before has arrived.
  [[nodiscard]] std::optional<Error> gone(const Epoch& epoch, GroupRank rank) const;
  /// The place of a tensor in this Context's pool, shown to the members of `epoch`.
  [[nodiscard]] PoolPlace pool_place(const Epoch& epoch, const Flat& tensors);
  [[nodiscard]] static PoolReader pool_reader(std::shared_ptr<Epoch> epoch);

  // MeshListener
  void on_inbound(MeshPlace mesh_place, InboundMessage&& inbound) override;
  void on_lost(MeshPlace mesh_place, const MemberChannel& channel, const Error& error,
               Absence how) override;
  // CallQueueOwner
  [[nodiscard]] std::optional<Error> failure(std::string_view what) const override;
  [[nodiscard]] Error why_over() const override;
  [[nodiscard]] std::vector<GroupRank> lost_ranks(const Epoch& epoch) const override;
  [[nodiscard]] std::optional<Error> lost(const Epoch& epoch, GroupRank rank) const override;
  /// Operations before `first` continue: a member that has done one has done its part, and one that
  /// cannot do it reports a smaller number.
  bool fail(const Epoch& epoch, const Error& error, std::uint64_t first) override
      TENDON_EXCLUDES(state_mutex_);
  void say_given(const Epoch& epoch, std::string_view given) override TENDON_EXCLUDES(state_mutex_);
  [[nodiscard]] std::optional<std::string> given_by(const Epoch& epoch,
                                                    GroupRank rank) const override;
  void abort(std::string_view reason) override;
  [[nodiscard]] std::shared_ptr<void> share() override { return shared_from_this(); }
  // Timed
  void on_time() override;

 private:
  static Result<std::shared_ptr<GroupCore>> join(const std::shared_ptr<Mesh>& mesh,
                                                 const GroupOptions& options, Deadline deadline);
  class Entering;
  /// Whether operations of an epoch that is left continue.
  enum class UnderWay : std::uint8_t { goes_on, ends_here };

  bool fail(const Epoch& epoch, const Error& error, std::uint64_t first, GroupPlace blamed)
      TENDON_EXCLUDES(state_mutex_);
  void say_all(Envelope envelope, Bytes body = {}) TENDON_EXCLUDES(state_mutex_);
  void say(GroupPlace place, const Envelope& envelope, Bytes body = {}) const;
  void take_back_held();
  void forget_members();
  void drop_messages_of_replaced() TENDON_REQUIRES(state_mutex_);
  /// False: it was an epoch left over from an abandoned call; the requested one is next.
  Result<bool> enter_next(Deadline deadline, Of members, Fence fence, std::string_view where);
  [[nodiscard]] bool is_admitted() const;
  Result<void> end_epoch(Of members, Deadline deadline, std::string_view where);
  [[nodiscard]] bool end_calls(UnderWay under_way);
  [[nodiscard]] std::string empty_places() const TENDON_REQUIRES(state_mutex_);
  void say_agreement() TENDON_EXCLUDES(state_mutex_);
  void on_ready(GroupPlace place, const Envelope& envelope);
  [[nodiscard]] Envelope ready_word() TENDON_REQUIRES(state_mutex_);
  void on_abort(GroupPlace place, const InboundMessage& inbound);
  void on_given(GroupPlace place, const InboundMessage& inbound);
  [[nodiscard]] static Error error_of(const AbortWord& word, const Epoch& epoch);
  void on_step(GroupPlace place, InboundMessage&& inbound);
  std::shared_ptr<Epoch> build(const View& view, std::uint32_t attempt);
  [[nodiscard]] Result<bool> show_board(const Epoch& epoch);
  [[nodiscard]] bool complete(Epoch& epoch) TENDON_REQUIRES(state_mutex_);
  [[nodiscard]] bool board_never_comes(const Epoch& epoch) const TENDON_REQUIRES(state_mutex_);
  void install(const std::shared_ptr<Epoch>& next);
  [[nodiscard]] std::shared_ptr<MemberChannel> channel_of(GroupPlace place) const {
    return mesh_->channel(mesh_places_[place]);
  }

  const std::shared_ptr<Mesh> mesh_;
  const std::uint64_t id_;
  const std::string name_;
  const ByPlace<MeshPlace> mesh_places_;
  const GroupPlace self_;
  MessageBox messages_;
  MessageWaits waits_;

  CallQueue calls_;

  mutable Mutex state_mutex_ TENDON_ACQUIRED_AFTER(calls_.mutex());
  std::shared_ptr<Epoch> epoch_ TENDON_GUARDED_BY(state_mutex_) = std::make_shared<Epoch>();
  // Set while it is entered, and after that was abandoned.
  std::shared_ptr<Epoch> next_ TENDON_GUARDED_BY(state_mutex_);
  Seats seats_ TENDON_GUARDED_BY(state_mutex_);
  // Changed under state_mutex_; its end may be read anywhere.
  EpochEnd end_;
  GivenWords given_ TENDON_GUARDED_BY(state_mutex_);
  EarlyWords early_ TENDON_GUARDED_BY(state_mutex_);
  std::map<ByPlace<MeshPlace>, std::uint32_t> subgroups_made_ TENDON_GUARDED_BY(state_mutex_);
  bool ticking_ TENDON_GUARDED_BY(state_mutex_) = false;
  std::atomic<bool> left_{false};
  std::atomic<std::uint64_t> epochs_entered_{0};
  std::weak_ptr<GroupCore> parent_;  // its epoch makes this group; set before it is entered
};

}  // namespace tendon::v0::detail
