// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/completion.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/tensor/tensor.hpp>
#include <vector>

#include "group/epochs/epoch_end.hpp"
#include "group/epochs/operation.hpp"
#include "runtime/timers.hpp"
#include "runtime/waits_for.hpp"

namespace tendon::v0::detail {

/// The group whose calls are in a queue.
class CallQueueOwner {
 public:
  // Called with the queue's lock held.
  /// The error of a call in an epoch that is over; nullopt while it runs.
  [[nodiscard]] virtual std::optional<Error> failure(std::string_view what) const = 0;
  /// The reason why the epoch ends where its EpochEnd says.
  [[nodiscard]] virtual Error why_over() const = 0;
  /// The members of this epoch that have left or were lost.
  [[nodiscard]] virtual std::vector<GroupRank> lost_ranks(const Epoch& epoch) const = 0;
  [[nodiscard]] virtual std::optional<Error> lost(const Epoch& epoch, GroupRank rank) const = 0;
  /// Ends that epoch, if it is the one that runs, from operation `first` on, and tells all members.
  /// False if it had ended that early before.
  virtual bool fail(const Epoch& epoch, const Error& error, std::uint64_t first) = 0;
  /// Tells all others, once an epoch, this member's tensors for the operation at which it ends.
  virtual void say_given(const Epoch& epoch, std::string_view given) = 0;
  /// The text of that member about its tensors; nullopt before it has said so.
  [[nodiscard]] virtual std::optional<std::string> given_by(const Epoch& epoch,
                                                            GroupRank rank) const = 0;
  // Called without it.
  virtual void abort(std::string_view reason) = 0;
  /// Keeps the owner alive for work that may outlive the group's handle.
  [[nodiscard]] virtual std::shared_ptr<void> share() = 0;

 protected:
  ~CallQueueOwner() = default;
};

/// The collectives of a group in the order of their calls, which is that of all members. Whichever
/// thread waits or makes progress advances the first one; the others wait for it.
///
/// Owns:    the operations, a share of their epoch.
/// Threads: thread-safe. Its lock is taken after a link's receive lock and before its owner's.
/// Errors:  those of an operation; an operation that fails ends the epoch.
/// Blocks:  run(), until the deadline.
/// Cost:    one lock a call, and one for each look at its input.
class CallQueue final : public Work, public Timed {
 public:
  /// `end` belongs to the epoch that runs; its owner has it.
  CallQueue(CallQueueOwner& owner, std::shared_ptr<ContextCore> context, const EpochEnd& end,
            std::string group)
      : owner_(owner), context_(std::move(context)), end_(end), group_(std::move(group)) {}

  /// `make` gets the epoch and the operation's number.
  using Make =
      std::function<Result<std::shared_ptr<Operation>>(Epoch& epoch, std::uint64_t sequence)>;
  Result<void> run(const Make& make, Deadline deadline);
  /// Starts it and runs it as far as possible without a wait.
  Completion<void> start(const Make& make);
  /// Performs an all_reduce of few bytes on one host without an operation, if the queue is empty
  /// and all members are on time. nullopt: nothing was done, call run().
  std::optional<Result<void>> reduce_at_once(const Tensor& tensor, const ReduceOp& op,
                                             Deadline deadline);
  /// Advances as far as possible without a wait, unless another thread does so already.
  void advance() { advance(nullptr); }
  /// Notes that the owner's lost_ranks() has grown. The owner has its lock.
  void note_loss() noexcept { news_heard_.fetch_add(1, std::memory_order_release); }
  /// Makes the next thread that makes progress drop the steps that no operation will take.
  void drop_dead_steps_soon();
  /// Notes another member's word of a mismatch: the next thread that makes progress tells the
  /// others this member's tensors.
  void say_given_soon();
  /// Notes that a member has told its tensors.
  void note_given();
  /// Releases the channels of the epoch. The group has been left, and its epoch has ended from the
  /// first operation on, so all operations here have ended too.
  void close() TENDON_EXCLUDES(mutex_);

  /// The first call that has not ended.
  struct UnderWay {
    CollectiveOp op;
    std::uint64_t sequence = 0;
    std::chrono::nanoseconds elapsed{0};  ///< since it was found waiting
    std::vector<GroupRank> awaited{};
  };
  /// nullopt: none is under way. Waits some milliseconds for a thread that works on the queue, and
  /// then reports the operation of that thread.
  [[nodiscard]] std::optional<UnderWay> under_way() const TENDON_EXCLUDES(mutex_);
  /// The number of the last operation that was complete.
  [[nodiscard]] std::uint64_t last_complete() const noexcept { return last_complete_.load(); }
  /// The least that a member of this epoch had completed when it entered.
  [[nodiscard]] std::uint64_t complete_everywhere() const noexcept {
    return complete_everywhere_.load();
  }

  // For changes of the epoch, made together with those that the owner makes under its own lock
  [[nodiscard]] Mutex& mutex() const noexcept TENDON_RETURNS_LOCK(mutex_) { return mutex_; }
  /// Makes later calls belong to that epoch. Numbers continue from the highest of any member.
  void begin(std::shared_ptr<Epoch> next) TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool empty() const TENDON_REQUIRES(mutex_) { return calls_.empty(); }
  /// The last number that was assigned.
  [[nodiscard]] std::uint64_t issued() const TENDON_REQUIRES(mutex_) { return issued_; }
  /// The number of the first operation that has not ended.
  [[nodiscard]] std::uint64_t first_open() const TENDON_REQUIRES(mutex_) {
    return calls_.empty() ? issued_ + 1 : calls_.front()->operation->sequence();
  }
  /// Drops steps that no operation will take: they would hold the links on which they arrived.
  void drop_dead_steps() TENDON_REQUIRES(mutex_);

  // Work
  bool progress() override;
  [[nodiscard]] bool has_input() const noexcept override;
  // Timed
  void on_time() override;

 private:
  using Clock = std::chrono::steady_clock;
  class OperationCompletion;
  struct Queued {
    std::shared_ptr<Operation> operation;
    std::shared_ptr<OperationCompletion> completion;  // of an asynchronous one
    bool begun = false;
    std::vector<WaitsFor> waits;  // once some thread had to wait for it
    Clock::time_point waits_since{};
    std::atomic<bool> over{false};
    std::optional<Error> error;
    std::optional<Error> timed_out;  // the error of its end, unless it completes after all
    std::optional<Error> mismatch;   // the error of its end, once the other member's word is here
    Deadline patience = Deadline::never();  // for that word
  };
  struct LastGiven {
    std::uint64_t sequence = 0;
    FlatSummary what;
  };
  using Calls = std::vector<std::shared_ptr<Queued>>;

  [[nodiscard]] std::shared_ptr<CallQueue> share() { return {owner_.share(), this}; }
  Result<std::shared_ptr<Queued>> submit(const Make& make,
                                         std::shared_ptr<OperationCompletion> completion);
  Result<void> finish(const std::shared_ptr<Queued>& queued, Deadline deadline);
  bool wait(Queued& queued, Deadline deadline);
  /// `mine` is the operation for which the calling thread waits: nobody has to be told of its end.
  void advance(const Queued* mine) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] Calls take_over(const Queued* mine) TENDON_REQUIRES(mutex_);
  void tell(const Calls& calls);
  void note_begun(Queued& queued) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::optional<Result<void>> look(Queued& head) TENDON_REQUIRES(mutex_);
  void add_given(Error& error, const Queued& head) const TENDON_REQUIRES(mutex_);
  void say_given(const FlatSummary& given) TENDON_REQUIRES(mutex_);
  void answer_with_given() TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool may_end(const Queued& head) const TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::optional<Result<void>> end_of_mismatch(Queued& head) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::optional<Result<void>> fail_at(Queued& head, Error error)
      TENDON_REQUIRES(mutex_);
  void announce(Queued& queued);
  void register_work();
  void time_out(const std::shared_ptr<Queued>& queued);
  void end_at_deadline(Queued& queued) TENDON_REQUIRES(mutex_);
  void poll_awaited(Queued& queued);
  [[nodiscard]] std::string describe(const Operation& operation) const;

  CallQueueOwner& owner_;
  const std::shared_ptr<ContextCore> context_;
  const EpochEnd& end_;
  const std::string group_;

  mutable Mutex mutex_;
  std::deque<std::shared_ptr<Queued>> calls_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t issued_ TENDON_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Epoch> epoch_ TENDON_GUARDED_BY(mutex_) = std::make_shared<Epoch>();
  // The news_heard_ that the epoch has looked at; 0 before it has.
  std::uint64_t looked_at_ TENDON_GUARDED_BY(mutex_) = 0;
  std::vector<GroupRank> lost_ranks_ TENDON_GUARDED_BY(mutex_);
  LastGiven last_given_ TENDON_GUARDED_BY(mutex_);  // to the last operation that was complete
  std::atomic<std::uint64_t> news_heard_{0};
  Progression progression_;
  std::atomic<std::uint64_t> begun_{0};  // the last one: its number, and in the lower byte its
                                         // operation
  std::atomic<std::uint64_t> last_complete_{0};
  std::atomic<std::uint64_t> complete_everywhere_{0};
  std::atomic<bool> registered_{false};
  std::atomic<bool> will_drop_{false};  // steps that no operation takes
  std::atomic<bool> will_say_{false};   // this member's tensors
  std::atomic<bool> closed_{false};
};

}  // namespace tendon::v0::detail
