// SPDX-License-Identifier: Apache-2.0
#include "group/epochs/call_queue.hpp"

#include <algorithm>
#include <thread>

#include "runtime/awaited.hpp"

namespace tendon::v0::detail {
namespace {

// In begun_.
constexpr unsigned kOpBits = 8;
// A thread works on the queue for longer only while it reduces or copies much.
constexpr auto kPatience = std::chrono::milliseconds(10);
// For the shapes of the other member of a mismatch. The first of its threads that makes progress
// sends them; a peer older than that word never does.
constexpr auto kPatienceForGiven = std::chrono::seconds(2);

}  // namespace

class CallQueue::OperationCompletion final : public Awaited<void> {
 public:
  explicit OperationCompletion(std::shared_ptr<CallQueue> queue)
      : Awaited(*queue->context_), queue_(std::move(queue)) {}
  void drive(Deadline deadline) override {
    if (auto queued = queued_.lock()) (void)queue_->wait(*queued, deadline);
    // The thread that ended it may not have reported yet.
    if (!finished()) (void)queue_->context_->wait(nullptr, deadline, [this] { return finished(); });
  }
  // A collective cannot be undone by one of its members.
  void cancel() override {
    if (!finished()) queue_->owner_.abort("a member cancelled an operation");
  }
  void expire() override {
    if (auto queued = queued_.lock()) queue_->time_out(queued);
  }
  void abandon() override {}
  void of(std::weak_ptr<Queued> queued) { queued_ = std::move(queued); }

 private:
  const std::shared_ptr<CallQueue> queue_;
  std::weak_ptr<Queued> queued_;
};

Result<std::shared_ptr<CallQueue::Queued>> CallQueue::submit(
    const Make& make, std::shared_ptr<OperationCompletion> completion) {
  context_->note_activity();
  TENDON_CHECK(context_->usable("group"));
  const Lock lock(mutex_);
  // The failure elsewhere may be later in the order: a member that completed this operation has
  // done its part.
  if (issued_ + 1 >= end_.first()) return *owner_.failure("a collective");
  TENDON_TRY(operation, make(*epoch_, issued_ + 1));
  ++issued_;
  epoch_->history.add(operation->fingerprint());
  auto queued = std::make_shared<Queued>();
  queued->operation = std::move(operation);
  queued->completion = std::move(completion);
  calls_.push_back(queued);
  return queued;
}

Result<void> CallQueue::run(const Make& make, Deadline deadline) {
  TENDON_TRY(queued, submit(make, nullptr));
  return finish(queued, deadline);
}

Result<void> CallQueue::finish(const std::shared_ptr<Queued>& queued, Deadline deadline) {
  if (!wait(*queued, deadline)) time_out(queued);
  if (queued->error) return *queued->error;
  return {};
}

Completion<void> CallQueue::start(const Make& make) {
  auto completion = std::make_shared<OperationCompletion>(share());
  auto queued = submit(make, completion);
  if (!queued) {
    completion->conclude(std::move(queued).error());
    return Completion<void>(std::move(completion));
  }
  completion->of(*queued);
  advance(nullptr);
  if (!(*queued)->over) announce(**queued);
  return Completion<void>(std::move(completion));
}

bool CallQueue::wait(Queued& queued, Deadline deadline) {
  const auto attempt = [&] {
    if (queued.over.load(std::memory_order_acquire)) return true;
    poll_awaited(queued);
    advance(queued.completion == nullptr ? &queued : nullptr);
    return queued.over.load(std::memory_order_acquire);
  };
  if (attempt()) return true;
  if (context_->spin_for_flags(deadline, attempt, &progression_)) return true;
  announce(queued);
  return context_->wait(nullptr, deadline, attempt, &progression_);
}

// From here on sleepers look for the operation's input, and the peers ring for it.
void CallQueue::announce(Queued& queued) {
  {
    const Lock lock(mutex_);
    if (queued.over || !queued.waits.empty()) return;
    queued.waits_since = Clock::now();
    queued.waits.reserve(epoch_->channels.size());
    for (const auto& channel : epoch_->channels)
      if (channel != nullptr)
        queued.waits.emplace_back(*context_, channel->link(), WaitsFor::kFlags);
  }
  register_work();
}

void CallQueue::register_work() {
  if (!registered_.exchange(true)) context_->add_work(share());
}

// For collectives over links: the threads that wait for their messages receive them.
void CallQueue::poll_awaited(Queued& queued) {
  std::vector<std::shared_ptr<Link>> links;
  {
    const Lock lock(mutex_);
    if (queued.over || epoch_->board != nullptr || calls_.empty()) return;
    for (const GroupRank rank : calls_.front()->operation->waits_for(*epoch_))
      links.push_back(epoch_->channels[rank]->link().shared_from_this());
  }
  for (const auto& link : links)
    if (!link->traits().shows_input || link->has_input()) context_->poll_link(*link);
}

void CallQueue::note_begun(Queued& queued) {
  queued.begun = true;
  const auto op = static_cast<std::uint64_t>(queued.operation->fingerprint().op);
  begun_.store(queued.operation->sequence() << kOpBits | op, std::memory_order_relaxed);
}

// The state of the head of the queue: nothing yet, complete, or an error.
std::optional<Result<void>> CallQueue::look(Queued& head) {
  // Read before advance(), which then finds all that arrived before the word of a loss.
  const std::uint64_t heard = news_heard_.load(std::memory_order_acquire);
  if (heard != looked_at_) {
    looked_at_ = heard;
    lost_ranks_ = owner_.lost_ranks(*epoch_);
  }
  if (head.mismatch) return end_of_mismatch(head);
  std::vector<GroupRank> gone_before;
  for (const GroupRank rank : lost_ranks_)
    if (all_arrived_from(*epoch_, rank)) gone_before.push_back(rank);
  const bool over = head.operation->sequence() >= end_.first();
  const auto advance = [&]() TENDON_REQUIRES(mutex_) -> std::optional<Result<void>> {
    const std::uint64_t steps = head.operation->steps_done();
    auto advanced = head.operation->advance(*epoch_);
    if (head.operation->steps_done() != steps)
      progression_.moves.fetch_add(1, std::memory_order_relaxed);
    if (!advanced) return fail_at(head, std::move(advanced).error());
    if (*advanced) return Result<void>();
    return {};
  };
  // An operation that had begun when the epoch failed may be complete by data that lies here.
  if (!over || head.begun) {
    if (!head.begun) note_begun(head);
    if (auto came_to = advance()) return came_to;
  }
  if (auto usable = context_->usable("group.collective"); !usable)
    return fail_at(head, std::move(usable).error());
  if (over) {
    Error error = owner_.why_over();
    // The first error belongs to the operation that it interrupted; for the rest the epoch has
    // ended.
    if (!head.begun && error.code != ErrorCode::peer_lost) error.code = ErrorCode::group_aborted;
    if (error.code == ErrorCode::mismatch) {
      // A later operation is not the one that differed; a member that was done with its part was at
      // it.
      const std::uint64_t first = end_.first();
      if (first == EpochEnd::kAll || first == head.operation->sequence()) add_given(error, head);
      answer_with_given();
    }
    return error;
  }
  if (gone_before.empty()) return {};
  const auto awaited_and_gone = [&]() TENDON_REQUIRES(mutex_) {
    std::vector<GroupRank> ranks = head.operation->waits_for(*epoch_);
    std::erase_if(ranks, [&](GroupRank rank) {
      return std::find(gone_before.begin(), gone_before.end(), rank) == gone_before.end();
    });
    return ranks;
  };
  const std::vector<GroupRank> suspects = awaited_and_gone();
  if (suspects.empty()) return {};
  // Another thread may have sent the last data that a member needed, and not noted it yet.
  for (const GroupRank rank : suspects) epoch_->channels[rank]->wait_for_sender();
  if (auto came_to = advance()) return came_to;
  for (const GroupRank rank : awaited_and_gone())
    if (auto error = owner_.lost(*epoch_, rank)) return fail_at(head, *std::move(error));
  return {};
}

// A mismatch is reported by sizes and hashes: each member adds its shapes.
void CallQueue::add_given(Error& error, const Queued& head) const {
  error.detail +=
      "; " + epoch_->names[epoch_->self] + " gave " + to_string(head.operation->given());
}

void CallQueue::say_given(const FlatSummary& given) { owner_.say_given(*epoch_, to_string(given)); }

// The word that ended the epoch says at which operation it ends. If two members had made other
// calls before, it is the one at which this member is.
void CallQueue::answer_with_given() {
  const std::uint64_t first = end_.first();
  if (first == EpochEnd::kRuns) return;
  for (const auto& queued : calls_) {
    if (first != EpochEnd::kAll && queued->operation->sequence() != first) continue;
    return say_given(queued->operation->given());
  }
  if (last_given_.sequence != 0 && (first == EpochEnd::kAll || first == last_given_.sequence))
    say_given(last_given_.what);
}

// True if there is nothing to wait for before a mismatch is reported.
bool CallQueue::may_end(const Queued& head) const {
  const GroupRank other = *head.operation->differs_from();
  return head.patience.has_passed() || context_->unusable() || owner_.given_by(*epoch_, other) ||
         owner_.lost(*epoch_, other);
}

std::optional<Result<void>> CallQueue::end_of_mismatch(Queued& head) {
  if (!may_end(head)) return {};
  const GroupRank other = *head.operation->differs_from();
  if (const auto given = owner_.given_by(*epoch_, other))
    head.mismatch->detail += "; " + epoch_->names[other] + " gave " + *given;
  return *std::exchange(head.mismatch, std::nullopt);
}

// Ends the operation at the head of the queue with that error; not yet, while it waits for the
// other member's side of a mismatch.
std::optional<Result<void>> CallQueue::fail_at(Queued& head, Error error) {
  const Operation& operation = *head.operation;
  const bool is_mismatch = error.code == ErrorCode::mismatch;
  if (is_mismatch) add_given(error, head);
  (void)owner_.fail(*epoch_, error,
                    operation.counts_alike() ? operation.sequence() : EpochEnd::kAll);
  if (is_mismatch) say_given(operation.given());
  if (!is_mismatch || !operation.differs_from()) return error;
  head.mismatch = std::move(error);
  head.patience = Deadline(kPatienceForGiven);
  (void)context_->add_timed(head.patience, std::shared_ptr<Timed>(owner_.share(), this));
  return end_of_mismatch(head);
}

void CallQueue::advance(const Queued* mine) {
  Calls others;
  std::shared_ptr<Epoch> over_links;
  {
    if (!mutex_.try_lock()) return;
    const Lock lock(mutex_, kAdoptLock);
    if (epoch_->board == nullptr) over_links = epoch_;
    others = take_over(mine);
  }
  if (over_links != nullptr) settle_steps(*over_links);
  tell(others);
}

// Ends every operation that can end. Returns those for which other threads wait.
CallQueue::Calls CallQueue::take_over(const Queued* mine) {
  Calls others;
  while (!calls_.empty()) {
    auto result = look(*calls_.front());
    if (!result) break;
    std::shared_ptr<Queued> head = std::move(calls_.front());
    calls_.pop_front();
    if (*result) {
      last_complete_.store(head->operation->sequence(), std::memory_order_relaxed);
      last_given_ = {head->operation->sequence(), head->operation->take_given()};
    } else {
      head->operation->give_up(*epoch_);
      head->error = head->timed_out ? std::move(head->timed_out) : std::move(*result).error();
      // A mismatch says what each member called.
      std::string& detail = head->error->detail;
      if (detail.find(to_string(head->operation->fingerprint())) == std::string::npos)
        detail.insert(0, describe(*head->operation) + ": ");
    }
    head->waits.clear();
    head->over.store(true, std::memory_order_release);
    if (head.get() != mine) others.push_back(std::move(head));
  }
  drop_dead_steps();
  return others;
}

void CallQueue::tell(const Calls& calls) {
  if (calls.empty()) return;
  for (const auto& queued : calls) {
    if (queued->completion == nullptr) continue;
    Result<void> result;
    if (queued->error) result = *queued->error;
    queued->completion->conclude(std::move(result));
  }
  if (!context_->unusable()) context_->wake_others();
}

void CallQueue::close() {
  Calls others;
  std::shared_ptr<Epoch> last;  // released after the lock: the end of a link takes others
  {
    // Waits for a thread that works on it: that one may not have seen the end.
    const Lock lock(mutex_);
    if (!calls_.empty()) calls_.front()->patience = Deadline::now();
    others = take_over(nullptr);
    last = std::exchange(epoch_, std::make_shared<Epoch>());
  }
  if (last->board == nullptr) settle_steps(*last);
  tell(others);
  closed_ = true;
  // The Context has a share until it looks at its work, for which there may be no other reason.
  if (registered_) context_->schedule([] {});
}

std::optional<CallQueue::UnderWay> CallQueue::under_way() const {
  for (const Deadline patience(kPatience); !mutex_.try_lock();) {
    if (!patience.has_passed()) {
      std::this_thread::yield();
      continue;
    }
    const std::uint64_t begun = begun_.load(std::memory_order_relaxed);
    if (begun >> kOpBits <= last_complete()) return {};
    return UnderWay{.op = static_cast<CollectiveOp>(begun & ((1u << kOpBits) - 1)),
                    .sequence = begun >> kOpBits};
  }
  const Lock lock(mutex_, kAdoptLock);
  if (calls_.empty()) return {};
  const Queued& head = *calls_.front();
  UnderWay found{.op = head.operation->fingerprint().op, .sequence = head.operation->sequence()};
  if (head.waits_since != Clock::time_point()) found.elapsed = Clock::now() - head.waits_since;
  found.awaited = head.operation->waits_for(*epoch_);
  return found;
}

void CallQueue::begin(std::shared_ptr<Epoch> next) {
  epoch_ = std::move(next);
  const Hosts& hosts = epoch_->hosts;
  const auto members_here = hosts.ranks(hosts.host_of(epoch_->self.value)).size();
  progression_.crowd =
      members_here > context_->waiting().cpu_count() ? Crowd::shares_cpus : Crowd::fits;
  looked_at_ = 0;
  lost_ranks_.clear();
  last_given_ = {};
  std::uint64_t complete = Ready::kNewHere;
  for (const Ready& ready : epoch_->ready) {
    issued_ = std::max(issued_, ready.issued);
    complete = std::min(complete, ready.completed);
  }
  complete_everywhere_ = complete == Ready::kNewHere ? 0 : complete;
  if (epoch_->ready[epoch_->self].completed == Ready::kNewHere)
    last_complete_ = complete_everywhere_.load();
}

std::string CallQueue::describe(const Operation& operation) const {
  return to_string(operation.fingerprint()) + " on group \"" + group_ + "\"";
}

void CallQueue::time_out(const std::shared_ptr<Queued>& queued) {
  {
    const Lock lock(mutex_);
    if (queued->over) return;
    end_at_deadline(*queued);
  }
  const Queued* const mine = queued->completion == nullptr ? queued.get() : nullptr;
  while (!queued->over) advance(mine);
  context_->wake_others();
}

void CallQueue::end_at_deadline(Queued& queued) {
  Epoch& epoch = *epoch_;
  // It has failed already.
  if (calls_.front()->mismatch) {
    calls_.front()->patience = Deadline::now();
    return;
  }
  Operation& head = *calls_.front()->operation;
  std::string whom;
  for (const GroupRank rank : head.waits_for(epoch)) {
    whom += (whom.empty() ? "" : ", ") + epoch.names[rank];
    if (epoch.channels[rank] != nullptr && epoch.channels[rank]->link().suspect())
      whom += " [suspect: no sign of life]";
  }
  Error error{ErrorCode::timeout, "group.collective",
              describe(*queued.operation) + " waits for " +
                  (whom.empty() ? std::string("its own sends") : whom)};
  if (calls_.front().get() != &queued)
    error.detail += ": " + describe(head) + ", called before it, is not done";
  if (owner_.fail(epoch, error, EpochEnd::kAll)) queued.timed_out = std::move(error);
}

// An operation that has begun may be complete by them, so it ends first.
void CallQueue::drop_dead_steps() {
  if (!calls_.empty() || end_.runs()) return;
  // They are released after the lock: each may add a Work, and the list of those asks has_input().
  std::vector<InboundMessage> dead;
  const Lock lock(epoch_->inbox_mutex);
  for (auto& inbox : epoch_->inbox) {
    for (InboundMessage& step : std::exchange(inbox, {})) {
      const bool is_dead = end_.ends_before(operation_number(step.envelope));
      (is_dead ? dead.emplace_back() : inbox.emplace_back()) = std::move(step);
    }
  }
}

// Runs in any thread that makes progress: the only one may be a call that waits on a link that
// these steps pause.
void CallQueue::drop_dead_steps_soon() {
  if (context_->unusable() || closed_) return;
  will_drop_ = true;
  register_work();
  context_->wake_for_work();
}

void CallQueue::say_given_soon() {
  if (context_->unusable() || closed_) return;
  will_say_ = true;
  note_given();
}

void CallQueue::note_given() {
  if (context_->unusable() || closed_) return;
  note_loss();  // there is something to look at
  register_work();
  context_->wake_for_work();
}

// The peer's word has not arrived: its side is left out.
void CallQueue::on_time() {
  if (closed_) return;
  Calls others;
  {
    const Lock lock(mutex_);
    others = take_over(nullptr);
  }
  tell(others);
  context_->wake_others();
}

bool CallQueue::progress() {
  if (closed_) return false;
  advance(nullptr);
  if (will_say_ && will_say_.exchange(false)) {
    const Lock lock(mutex_);
    answer_with_given();
  }
  if (will_drop_ && will_drop_.exchange(false)) {
    const Lock lock(mutex_);
    drop_dead_steps();
  }
  return true;
}

bool CallQueue::has_input() const noexcept {
  if (!mutex_.try_lock()) return true;
  const Lock lock(mutex_, kAdoptLock);
  if (will_say_) return true;
  if (calls_.empty()) return false;
  // The caller has a lock that is taken after the owner's: the owner is not asked here.
  const bool has_news = news_heard_.load(std::memory_order_acquire) != looked_at_;
  if (calls_.front()->mismatch) return has_news || calls_.front()->patience.has_passed();
  Operation& head = *calls_.front()->operation;
  return head.sequence() >= end_.first() || has_news || head.has_input(*epoch_);
}

}  // namespace tendon::v0::detail
