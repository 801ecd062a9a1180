// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/group/group.hpp>
#include <vector>

#include "group/agreement.hpp"
#include "group/mesh.hpp"
#include "group/message_box.hpp"
#include "group/operation.hpp"
#include "group/rounds.hpp"

namespace tendon::v0::detail {

/// One member's share of a group: its epochs, the lane in which its collectives run, what it does
/// when somebody is lost.
///
///     entering --`ready` of all members of the view--> running
///     running --an operation failed, a member was lost, somebody said `abort`--> failed
///     failed --shrink()--> entering, in a view without those who are gone
///     running, failed --grow(), rebuild()--> entering, in a view with those who have come
///
/// Owns:    the epoch, a share of the mesh.
/// Threads: thread-safe. Lock order: a link's receive lock; lane_mutex_; state_mutex_; an epoch's
///          inbox.
/// Errors:  as Group says.
/// Blocks:  calls with a deadline.
/// Cost:    one lock an operation.
class GroupCore final : public MeshListener,
                        public Work,
                        public Timed,
                        public std::enable_shared_from_this<GroupCore> {
 public:
  [[nodiscard]] static Result<std::shared_ptr<GroupCore>> join(std::shared_ptr<Engine> engine,
                                                               const Rendezvous& rendezvous,
                                                               const GroupOptions& options,
                                                               Deadline deadline);
  /// The group `id` of those places of the mesh, before this member's first epoch. `view` is empty
  /// for one who comes in the place of another.
  GroupCore(std::shared_ptr<Mesh> mesh, std::uint64_t id, std::string name,
            std::vector<std::uint32_t> mesh_places, const View& view, Minority minority);

  enum class Of : std::uint8_t {
    everybody,    ///< of the last epoch, or an error that names who is gone
    those_left,   ///< of the last epoch
    those_here,   ///< those left, and who has come in the place of another
    every_place,  ///< waits until somebody has come for each
  };
  /// The next epoch: each of its members calls this.
  Result<void> enter(Deadline deadline, Of members, Fence fence, std::string_view where);
  /// The handle is gone.
  void leave();
  void abort(std::string_view reason);
  Result<std::shared_ptr<GroupCore>> subgroup(std::vector<std::uint32_t> ranks, Deadline deadline,
                                              std::string_view name);

  /// Puts an operation in the lane; `make` gets the epoch and the operation's number. Runs it as
  /// far as it comes without waiting.
  using Make =
      std::function<Result<std::shared_ptr<Operation>>(Epoch& epoch, std::uint64_t sequence)>;
  Result<void> run(const Make& make, Deadline deadline);
  /// An all_reduce of few bytes on one host, when nothing is before it in the lane: without an
  /// operation, for as long as everybody is on time. nullopt: nothing was done, run() it.
  std::optional<Result<void>> reduce_at_once(const Tensor& tensor, const ReduceOp& op,
                                             Deadline deadline);
  Completion<void> start(const Make& make);

  [[nodiscard]] std::shared_ptr<Epoch> epoch() const;
  [[nodiscard]] const std::shared_ptr<Mesh>& mesh() const noexcept { return mesh_; }
  [[nodiscard]] const std::shared_ptr<Engine>& engine() const noexcept { return mesh_->engine(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] std::uint32_t mesh_place(std::uint32_t place) const { return mesh_places_[place]; }
  [[nodiscard]] std::uint64_t epochs_entered() const noexcept { return epochs_entered_.load(); }
  [[nodiscard]] std::uint64_t last_complete() const noexcept { return last_complete_.load(); }
  /// The least that a member of this epoch had completed when it entered.
  [[nodiscard]] std::uint64_t complete_everywhere() const noexcept {
    return complete_everywhere_.load();
  }
  [[nodiscard]] MessageBox& messages() noexcept { return messages_; }
  /// The error of a call in an epoch that has failed; nullopt while it runs.
  [[nodiscard]] std::optional<Error> failure(std::string_view what) const;
  /// Has this member, by its rank now, gone?
  [[nodiscard]] std::optional<Error> lost(const Epoch& epoch, std::uint32_t rank) const;
  /// The same, once all that it sent before it went has arrived.
  [[nodiscard]] std::optional<Error> gone(const Epoch& epoch, std::uint32_t rank) const;
  /// Where a tensor lies in this Context's pool, shown to the members of `epoch`.
  [[nodiscard]] PoolPlace pool_place(const Epoch& epoch, const Flat& tensors);
  [[nodiscard]] static PoolReader pool_reader(std::shared_ptr<Epoch> epoch);

  // MeshListener
  void on_inbound(std::uint32_t mesh_place, InboundMessage&& inbound) override;
  void on_lost(std::uint32_t mesh_place, const Channel& channel, const Error& error,
               Absence how) override;
  // Work
  bool progress() override;
  [[nodiscard]] bool has_input() const noexcept override;
  // Timed
  void on_time() override;

 private:
  static Result<std::shared_ptr<GroupCore>> join(const std::shared_ptr<Mesh>& mesh,
                                                 const GroupOptions& options, Deadline deadline);
  class OperationCompletion;
  class Entering;
  struct Queued {
    std::shared_ptr<Operation> operation;
    std::shared_ptr<OperationCompletion> completion;  // of an asynchronous one
    bool begun = false;
    bool announced = false;  // counted among those who wait for flags
    std::atomic<bool> over{false};
    std::optional<Error> error;
    std::optional<Error> timed_out;  // what it ends with, unless it is complete after all
  };
  // Of ends_at_.
  static constexpr std::uint64_t kAll = 0;
  static constexpr std::uint64_t kRuns = ~std::uint64_t{0};

  /// Why a member says that an epoch is over.
  struct AbortWord {
    Envelope envelope;
    std::string text;
  };

  Result<std::shared_ptr<Queued>> submit(const Make& make,
                                         std::shared_ptr<OperationCompletion> completion);
  Result<void> finish(const std::shared_ptr<Queued>& queued, Deadline deadline);
  bool wait(Queued& queued, Deadline deadline);
  [[nodiscard]] std::optional<Result<void>> look(Queued& head) TENDON_REQUIRES(lane_mutex_);
  void say_given(Error& error, const Queued& head) const TENDON_REQUIRES(lane_mutex_);
  [[nodiscard]] Error fail_at(const Queued& head, Error error) TENDON_REQUIRES(lane_mutex_);
  [[nodiscard]] std::vector<std::uint32_t> lost_ranks() const TENDON_REQUIRES(lane_mutex_);
  /// `mine` is what the calling thread waits for itself: nobody has to be told of its end.
  void advance_lane(const Queued* mine) TENDON_EXCLUDES(lane_mutex_);
  void announce(Queued& queued);
  void time_out(const std::shared_ptr<Queued>& queued);
  void poll_awaited(Queued& queued);
  [[nodiscard]] std::string describe(const Operation& operation) const;

  /// Ends that epoch, if it is the one that runs, from operation `first` on, and tells everybody.
  /// What comes before goes on: whoever has done it gave its part, and whoever does not do it says
  /// so by a smaller number. False if it had ended that early before.
  bool fail(const Epoch& epoch, const Error& error, std::uint32_t blamed, std::uint64_t first)
      TENDON_EXCLUDES(state_mutex_);
  [[nodiscard]] AbortWord own_word() const TENDON_REQUIRES(state_mutex_);
  void say_all(Envelope envelope, Bytes body = {}) TENDON_EXCLUDES(state_mutex_);
  void say(std::uint32_t place, const Envelope& envelope, Bytes body = {}) const;
  void take_back_held();
  void forget_members();
  void miss(std::uint32_t place, Absence how) TENDON_REQUIRES(state_mutex_);
  void miss_early() TENDON_REQUIRES(state_mutex_);
  void follow_view() TENDON_REQUIRES(state_mutex_);
  bool admit_newcomers() TENDON_REQUIRES(state_mutex_);
  bool keep_early(AbortWord word) TENDON_REQUIRES(state_mutex_);
  bool keep_early(std::uint32_t place, InboundMessage&& inbound) TENDON_REQUIRES(state_mutex_);
  void drop_messages_of_replaced() TENDON_REQUIRES(state_mutex_);
  /// False: it was an epoch left over from a call that had given up; the one asked for comes next.
  Result<bool> enter_next(Deadline deadline, Of members, Fence fence, std::string_view where);
  [[nodiscard]] bool is_admitted() const;
  Result<void> end_epoch(Of members, Deadline deadline, std::string_view where);
  [[nodiscard]] bool end_lane(bool at_once);
  [[nodiscard]] std::string empty_places() const TENDON_REQUIRES(state_mutex_);
  void say_agreement() TENDON_EXCLUDES(state_mutex_);
  void on_ready(std::uint32_t place, const Envelope& envelope);
  [[nodiscard]] Envelope ready_word() TENDON_REQUIRES(state_mutex_);
  void on_abort(const InboundMessage& inbound);
  [[nodiscard]] static Error error_of(const AbortWord& word, const Epoch& epoch);
  void on_step(std::uint32_t place, InboundMessage&& inbound);
  std::shared_ptr<Epoch> build(const View& view, std::uint32_t attempt);
  [[nodiscard]] Result<bool> show_board(const Epoch& epoch);
  [[nodiscard]] bool complete(Epoch& epoch) TENDON_REQUIRES(state_mutex_);
  [[nodiscard]] bool board_never_comes(const Epoch& epoch) const TENDON_REQUIRES(state_mutex_);
  void install(std::shared_ptr<Epoch> epoch);
  [[nodiscard]] std::optional<std::uint32_t> place_of(std::uint32_t mesh_place) const;
  [[nodiscard]] std::shared_ptr<Channel> channel_of(std::uint32_t place) const {
    return mesh_->channel(mesh_places_[place]);
  }

  const std::shared_ptr<Mesh> mesh_;
  const std::uint64_t id_;
  const std::string name_;
  const std::vector<std::uint32_t> mesh_places_;  // by place in this group
  std::uint32_t self_ = 0;                        // place in this group
  MessageBox messages_;

  mutable Mutex lane_mutex_;
  std::deque<std::shared_ptr<Queued>> lane_ TENDON_GUARDED_BY(lane_mutex_);
  std::uint64_t issued_ TENDON_GUARDED_BY(lane_mutex_) = 0;
  // The epoch, for who has the lane.
  std::shared_ptr<Epoch> running_ TENDON_GUARDED_BY(lane_mutex_);
  // Of losses_heard_ and of running_, when the lane was looked at last.
  std::uint64_t looked_at_ TENDON_GUARDED_BY(lane_mutex_) = 0;
  std::vector<std::uint32_t> lost_ranks_ TENDON_GUARDED_BY(lane_mutex_);

  mutable Mutex state_mutex_ TENDON_ACQUIRED_AFTER(lane_mutex_);
  std::shared_ptr<Epoch> epoch_ TENDON_GUARDED_BY(state_mutex_);
  // While it is entered, and when that was given up.
  std::shared_ptr<Epoch> next_ TENDON_GUARDED_BY(state_mutex_);
  Agreement agreement_ TENDON_GUARDED_BY(state_mutex_);
  std::uint64_t followed_view_ TENDON_GUARDED_BY(state_mutex_) = 0;
  /// By place: the channel to the process that is the member there, in the view of agreement_.
  /// Another one may have come to the mesh in its place since, and may be gone again.
  std::vector<std::shared_ptr<Channel>> seats_ TENDON_GUARDED_BY(state_mutex_);
  struct Loss {
    Error error;
    std::shared_ptr<const Channel> channel;  // to whom is gone
    Absence how;
    bool messages_dropped = false;  // what it sent and nobody took
  };
  std::map<std::uint32_t, Loss> lost_ TENDON_GUARDED_BY(state_mutex_);  // by place
  /// By place: ready for the epoch that is entered here, and gone.
  std::map<std::uint32_t, std::shared_ptr<const Channel>> left_early_
      TENDON_GUARDED_BY(state_mutex_);
  std::map<std::uint32_t, Ready> ready_ TENDON_GUARDED_BY(state_mutex_);  // by place, the latest
  // Of this epoch; the word is that of another member.
  std::optional<Error> failure_ TENDON_GUARDED_BY(state_mutex_);
  std::optional<AbortWord> failure_word_ TENDON_GUARDED_BY(state_mutex_);
  // The smallest number that all have been told of.
  std::uint64_t said_ TENDON_GUARDED_BY(state_mutex_) = kRuns;
  // Of epochs not entered yet.
  std::map<std::uint64_t, AbortWord> early_aborts_ TENDON_GUARDED_BY(state_mutex_);
  struct EarlySteps {
    std::vector<std::pair<std::uint32_t, InboundMessage>> steps;  // with the place of the sender
    std::uint64_t size_bytes = 0;                                 // of all that came
  };
  std::map<std::uint64_t, EarlySteps> early_steps_ TENDON_GUARDED_BY(state_mutex_);
  std::map<std::vector<std::uint32_t>, std::uint32_t> subgroups_made_
      TENDON_GUARDED_BY(state_mutex_);
  bool ticking_ TENDON_GUARDED_BY(state_mutex_) = false;
  /// The first operation that is not done in this epoch. None is before the first epoch.
  std::atomic<std::uint64_t> ends_at_{kAll};
  std::atomic<bool> left_{false};
  std::atomic<bool> registered_{false};
  std::atomic<std::uint64_t> losses_heard_{0};
  std::atomic<std::uint64_t> moves_{0};  // of the operations in the lane
  std::atomic<std::uint64_t> epochs_entered_{0};
  std::atomic<std::uint64_t> last_complete_{0};
  std::atomic<std::uint64_t> complete_everywhere_{0};
};

}  // namespace tendon::v0::detail
