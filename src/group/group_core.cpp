// SPDX-License-Identifier: Apache-2.0
#include "group/group_core.hpp"

#include <algorithm>
#include <tendon/observe/log.hpp>

#include "core/peer_error.hpp"
#include "core/text.hpp"
#include "group/agreement_wire.hpp"

namespace tendon::v0::detail {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(50);
// Between two tries to join at a rendezvous whose group is coming to its end.
constexpr auto kFirstPause = std::chrono::milliseconds(5);
constexpr auto kLongestPause = std::chrono::milliseconds(200);
// What a member says of epochs that this one has not entered yet: who waits for nobody, the root of
// broadcasts, may be far ahead. Of two or three epochs, unless it invents them.
constexpr std::uint64_t kMostEarlyBytes = std::uint64_t{256} << 20;
constexpr std::uint64_t kEarlyStepCostBytes = 1024;
constexpr std::size_t kMostEarlyEpochs = 64;

View first_view(std::size_t members) {
  View view{1, {}};
  for (std::size_t place = 0; place < members; ++place) view.members.set(place);
  return view;
}

std::uint32_t index_of(const std::vector<std::uint32_t>& places, std::uint32_t place) {
  return static_cast<std::uint32_t>(std::find(places.begin(), places.end(), place) -
                                    places.begin());
}

}  // namespace

class GroupCore::OperationCompletion final : public CompletionState<void> {
 public:
  explicit OperationCompletion(std::shared_ptr<GroupCore> core) : core_(std::move(core)) {}
  void drive(Deadline deadline) override {
    if (auto queued = queued_.lock()) (void)core_->wait(*queued, deadline);
    // Whoever ended it may not have told yet.
    if (!finished()) (void)core_->engine()->wait(nullptr, deadline, [this] { return finished(); });
  }
  // A collective cannot be undone by one of its members.
  void cancel() override {
    if (!finished()) core_->abort("a member cancelled an operation");
  }
  void expire() override {
    if (auto queued = queued_.lock()) core_->time_out(queued);
  }
  void abandon() override {}
  void schedule(std::function<void()> run) override { core_->engine()->schedule(std::move(run)); }
  void of(std::weak_ptr<Queued> queued) { queued_ = std::move(queued); }

 private:
  const std::shared_ptr<GroupCore> core_;
  std::weak_ptr<Queued> queued_;
};

GroupCore::GroupCore(std::shared_ptr<Mesh> mesh, std::uint64_t id, std::string name,
                     std::vector<std::uint32_t> mesh_places, const View& view, Minority minority)
    : mesh_(std::move(mesh)),
      id_(id),
      name_(std::move(name)),
      mesh_places_(std::move(mesh_places)),
      self_(index_of(mesh_places_, mesh_->self())),
      running_(std::make_shared<Epoch>()),
      epoch_(running_),
      agreement_(GroupRank{self_}, view, minority, kRetry),
      seats_(mesh_places_.size()) {
  follow_view();
}

Result<std::shared_ptr<GroupCore>> GroupCore::join(std::shared_ptr<Engine> engine,
                                                   const Rendezvous& rendezvous,
                                                   const GroupOptions& options, Deadline deadline) {
  for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    TENDON_TRY(mesh, Mesh::create(engine, rendezvous, options));
    auto core = join(mesh, options, deadline);
    if (core || deadline.has_passed() || !mesh->came_too_late()) return core;
    // The group that was there is over, or nearly: the next one of these members begins when they
    // have left it.
    mesh.reset();
    engine->wait(nullptr, earlier(deadline, pause), [&] { return engine->unusable(); });
    if (deadline.has_passed()) return core;
  }
}

Result<std::shared_ptr<GroupCore>> GroupCore::join(const std::shared_ptr<Mesh>& mesh,
                                                   const GroupOptions& options, Deadline deadline) {
  if (auto met = mesh->meet(deadline); !met) {
    mesh->end();
    return std::move(met).error();
  }
  std::vector<std::uint32_t> places(mesh->size());
  for (std::uint32_t place = 0; place < mesh->size(); ++place) places[place] = place;
  const std::uint64_t id = mesh->first_group();
  const bool late = mesh->replacement();
  const View view = late ? View() : first_view(places.size());
  auto core = std::make_shared<GroupCore>(mesh, id, options.name, std::move(places), view,
                                          options.minority);
  core->mesh_->add(id, core);
  auto entered =
      core->enter(deadline, late ? Of::those_here : Of::everybody, Fence::none, "group.join");
  if (!entered) {
    core->leave();
    return std::move(entered).error();
  }
  return core;
}

Result<std::shared_ptr<GroupCore>> GroupCore::subgroup(std::vector<std::uint32_t> ranks,
                                                       Deadline deadline, std::string_view name) {
  const auto now = epoch();
  std::vector<std::uint32_t> places;
  for (const std::uint32_t rank : ranks) {
    if (rank >= now->size() || std::count(ranks.begin(), ranks.end(), rank) != 1) {
      return Error{ErrorCode::invalid_argument, "group.subgroup",
                   "rank " + std::to_string(rank) +
                       (rank >= now->size()
                            ? " in a list of ranks of a group of " + std::to_string(now->size())
                            : " is twice in the list of ranks")};
    }
    places.push_back(mesh_places_[now->places[rank]]);
  }
  if (std::find(places.begin(), places.end(), mesh_->self()) == places.end()) {
    return Error{
        ErrorCode::invalid_argument, "group.subgroup",
        "this member, rank " + std::to_string(now->self) +
            ", is not in the list of ranks; only those in it call subgroup(), split() is for all"};
  }
  // All members make the same number of the same list, without a word.
  std::uint64_t id = id_;
  const auto mix = [&](std::uint64_t word) {
    id = (id ^ word) * 0x9e3779b97f4a7c15ull;
    id ^= id >> 29;
  };
  for (const std::uint32_t place : places) mix(place + 1);
  // The epoch: who has come in the place of another does not know what was made before it.
  mix(now->number());
  {
    const Lock lock(state_mutex_);
    mix(++subgroups_made_[places]);
  }
  const View view = first_view(places.size());
  auto core = std::make_shared<GroupCore>(
      mesh_, id, name.empty() ? name_ + "/" + std::to_string(ranks.front()) : std::string(name),
      std::move(places), view, Minority::refuse);
  mesh_->add(id, core);
  auto entered = core->enter(deadline, Of::everybody, Fence::none, "group.subgroup");
  if (!entered) {
    core->leave();
    return std::move(entered).error();
  }
  return core;
}

void GroupCore::leave() {
  if (engine()->forked() || left_.exchange(true)) return;
  if (!engine()->unusable()) {
    std::optional<AbortWord> word;
    {
      const Lock lock(state_mutex_);
      word = std::move(failure_word_);
    }
    // To those whom it has not reached, this member would be the one who ended it.
    if (word) say_all(word->envelope, as_bytes(word->text));
    take_back_held();
    say_all({.kind = EnvelopeKind::left, .from = self_});
  }
  bool is_last = false;
  {
    // Who has not gone says so later.
    const Lock lock(state_mutex_);
    MemberMask staying;
    for (std::uint32_t place = 0; place < mesh_places_.size(); ++place) {
      const auto& seat = seats_[place];
      const auto lost = lost_.find(place);
      const bool gone =
          seat == nullptr || seat->lost() || (lost != lost_.end() && lost->second.channel == seat);
      if (!gone) staying.set(mesh_places_[place]);
    }
    is_last = mesh_->remove(id_, staying);
  }
  messages_.close();
  std::shared_ptr<Epoch> last;
  std::shared_ptr<Epoch> next;
  {
    const Lock lane(lane_mutex_);
    const Lock lock(state_mutex_);
    next = std::move(next_);
    if (!failure_)
      failure_ = Error{ErrorCode::group_aborted, "group", "this member has left the group"};
    ends_at_ = 0;
    last = epoch_;
  }
  advance_lane(nullptr);
  for (const auto& epoch : {last, next})
    if (epoch != nullptr && epoch->board != nullptr) mesh_->forget_segment(epoch->board->segment());
  forget_members();
  // Completions have shares of this group and its mesh, for as long as the caller keeps them.
  if (is_last) mesh_->end();
  // So has the engine, until it looks at its work, for which there may be no other reason.
  if (registered_) engine()->schedule([] {});
}

// Their links and boards go as soon as no call needs them, even while this group is shared.
void GroupCore::forget_members() {
  const Lock lane(lane_mutex_);  // it is empty: ends_at_ ended what was in it
  const Lock lock(state_mutex_);
  running_ = epoch_ = std::make_shared<Epoch>();
  std::ranges::fill(seats_, nullptr);
  lost_.clear();
  left_early_.clear();
}

// What waits for the receiver to take earlier messages may wait for ever: the channels to whom this
// member has left would never end, and nobody could take its place.
void GroupCore::take_back_held() {
  for (std::uint32_t place = 0; place < mesh_places_.size(); ++place) {
    const auto channel = place == self_ ? nullptr : channel_of(place);
    if (channel == nullptr || channel->lost()) continue;
    const std::string name = mesh_->name_of(mesh_places_[place]);
    const Error why{ErrorCode::group_aborted, "group.send",
                    "this member has left group \"" + name_ + "\" while " + name +
                        " had not taken what was sent to it before; nothing of this was delivered"};
    if (const std::size_t count = channel->take_back_held(id_, why); count != 0) {
      log(LogLevel::warn, why.where, std::to_string(count) + " messages: " + why.detail);
    }
  }
}

void GroupCore::abort(std::string_view reason) {
  const auto now = epoch();
  (void)fail(*now,
             Error{ErrorCode::cancelled, "group.abort",
                   now->names.empty() ? std::string(reason)
                                      : now->names[now->self] + " aborted group \"" + name_ +
                                            "\": " + cleaned(reason)},
             self_, kAll);
  engine()->wake_others();
}

std::shared_ptr<Epoch> GroupCore::epoch() const {
  const Lock lock(state_mutex_);
  return epoch_;
}

std::optional<std::uint32_t> GroupCore::place_of(std::uint32_t mesh_place) const {
  const std::uint32_t place = index_of(mesh_places_, mesh_place);
  if (place == mesh_places_.size()) return {};
  return place;
}

// The lane

std::optional<Error> GroupCore::failure(std::string_view what) const {
  if (auto usable = engine()->usable("group." + std::string(what)); !usable)
    return std::move(usable).error();
  if (ends_at_.load(std::memory_order_acquire) == kRuns) return {};
  const Lock lock(state_mutex_);
  if (ends_at_ == kRuns) return {};
  // Whoever calls only now gets the member's name as those who waited did.
  const bool is_loss = failure_ && failure_->code == ErrorCode::peer_lost;
  return Error{is_loss ? ErrorCode::peer_lost : ErrorCode::group_aborted, "group",
               std::string(what) + " on group \"" + name_ +
                   "\": its epoch is over, shrink() makes the next one; " +
                   (failure_ ? failure_->detail : std::string("it was never complete"))};
}

Result<std::shared_ptr<GroupCore::Queued>> GroupCore::submit(
    const Make& make, std::shared_ptr<OperationCompletion> completion) {
  engine()->note_activity();
  TENDON_CHECK(engine()->usable("group"));
  const Lock lane(lane_mutex_);
  // What failed elsewhere may be later in the order: who is done with this one gave its part.
  if (issued_ + 1 >= ends_at_.load(std::memory_order_acquire)) return *failure("a collective");
  TENDON_TRY(operation, make(*running_, issued_ + 1));
  ++issued_;
  running_->history.add(operation->fingerprint());
  auto queued = std::make_shared<Queued>();
  queued->operation = std::move(operation);
  queued->completion = std::move(completion);
  lane_.push_back(queued);
  return queued;
}

Result<void> GroupCore::run(const Make& make, Deadline deadline) {
  TENDON_TRY(queued, submit(make, nullptr));
  return finish(queued, deadline);
}

Result<void> GroupCore::finish(const std::shared_ptr<Queued>& queued, Deadline deadline) {
  if (!wait(*queued, deadline)) time_out(queued);
  if (queued->error) return *queued->error;
  return {};
}

Completion<void> GroupCore::start(const Make& make) {
  auto completion = std::make_shared<OperationCompletion>(shared_from_this());
  auto queued = submit(make, completion);
  if (!queued) {
    if (auto call = completion->finish(std::move(queued).error()))
      engine()->schedule(std::move(call));
    return Completion<void>(std::move(completion));
  }
  completion->of(*queued);
  advance_lane(nullptr);
  if (!(*queued)->over) announce(**queued);
  return Completion<void>(std::move(completion));
}

bool GroupCore::wait(Queued& queued, Deadline deadline) {
  const auto attempt = [&] {
    if (queued.over.load(std::memory_order_acquire)) return true;
    poll_awaited(queued);
    advance_lane(queued.completion == nullptr ? &queued : nullptr);
    return queued.over.load(std::memory_order_acquire);
  };
  if (attempt()) return true;
  if (engine()->spin_for_flags(deadline, attempt, &moves_)) return true;
  announce(queued);
  return engine()->wait(nullptr, deadline, attempt, &moves_);
}

// From here on sleepers look for what the operation waits for, and the peers ring for it.
void GroupCore::announce(Queued& queued) {
  std::vector<std::shared_ptr<Channel>> channels;
  {
    const Lock lane(lane_mutex_);
    if (queued.over || queued.announced) return;
    queued.announced = true;
    channels = running_->channels;
    std::erase(channels, nullptr);
    for (const auto& channel : channels) channel->link().waiting_for_flags.fetch_add(1);
  }
  for (const auto& channel : channels) engine()->announce_again(channel->link());
  if (!registered_.exchange(true)) engine()->add_work(shared_from_this());
}

// Collectives over links: their messages are taken in by whoever waits for them.
void GroupCore::poll_awaited(Queued& queued) {
  std::vector<std::shared_ptr<Link>> links;
  {
    const Lock lane(lane_mutex_);
    if (queued.over || running_->board != nullptr || lane_.empty()) return;
    for (const std::uint32_t rank : lane_.front()->operation->waits_for(*running_))
      links.push_back(running_->channels[rank]->link().shared_from_this());
  }
  for (const auto& link : links)
    if (!link->delivers_at_once() || link->has_input()) engine()->poll_link(*link);
}

// What the head of the lane has come to: nothing yet, complete, or an error.
std::optional<Result<void>> GroupCore::look(Queued& head) {
  // Before advance(): what came ahead of the word that somebody has gone is there for it to find.
  const std::uint64_t heard = losses_heard_.load(std::memory_order_acquire);
  if (heard != looked_at_) {
    looked_at_ = heard;
    lost_ranks_ = lost_ranks();
  }
  std::vector<std::uint32_t> gone_before;
  for (const std::uint32_t rank : lost_ranks_)
    if (all_arrived_from(*running_, rank)) gone_before.push_back(rank);
  const bool over = head.operation->sequence() >= ends_at_.load(std::memory_order_acquire);
  const auto advance = [&]() TENDON_REQUIRES(lane_mutex_) -> std::optional<Result<void>> {
    const std::uint64_t steps = head.operation->steps_done();
    auto advanced = head.operation->advance(*running_);
    if (head.operation->steps_done() != steps) moves_.fetch_add(1, std::memory_order_relaxed);
    if (!advanced) return fail_at(head, std::move(advanced).error());
    if (*advanced) return Result<void>();
    return {};
  };
  // What had begun when the epoch failed may be complete by what lies there already.
  if (!over || head.begun) {
    head.begun = true;
    if (auto came_to = advance()) return came_to;
  }
  if (auto usable = engine()->usable("group.collective"); !usable)
    return fail_at(head, std::move(usable).error());
  if (over) {
    const Lock lock(state_mutex_);
    Error error = failure_.value_or(Error{ErrorCode::group_aborted, "group", "never complete"});
    // The first error is of what it interrupted; for the rest the epoch is over.
    if (!head.begun && error.code != ErrorCode::peer_lost) error.code = ErrorCode::group_aborted;
    if (error.code == ErrorCode::mismatch) say_given(error, head);
    return error;
  }
  if (gone_before.empty()) return {};
  const auto awaited_and_gone = [&]() TENDON_REQUIRES(lane_mutex_) {
    std::vector<std::uint32_t> ranks = head.operation->waits_for(*running_);
    std::erase_if(ranks, [&](std::uint32_t rank) {
      return std::find(gone_before.begin(), gone_before.end(), rank) == gone_before.end();
    });
    return ranks;
  };
  const std::vector<std::uint32_t> suspects = awaited_and_gone();
  if (suspects.empty()) return {};
  // Another thread may have sent what a member needed to be done and go, and not noted it yet.
  for (const std::uint32_t rank : suspects) running_->channels[rank]->wait_for_sender();
  if (auto came_to = advance()) return came_to;
  for (const std::uint32_t rank : awaited_and_gone())
    if (auto error = lost(*running_, rank)) return fail_at(head, *std::move(error));
  return {};
}

// A mismatch is told by sizes and hashes: each member adds its shapes.
void GroupCore::say_given(Error& error, const Queued& head) const {
  const FlatSummary& given = head.operation->given();
  if (given.tensor_count == 0) return;
  error.detail += "; " + running_->names[running_->self] + " gave " + to_string(given);
}

// The operation at the head of the lane ends here with that error.
Error GroupCore::fail_at(const Queued& head, Error error) {
  if (error.code == ErrorCode::mismatch) say_given(error, head);
  const Operation& operation = *head.operation;
  (void)fail(*running_, error, self_, operation.counts_alike() ? operation.sequence() : kAll);
  return error;
}

void GroupCore::advance_lane(const Queued* mine) {
  std::vector<std::shared_ptr<Queued>> others;
  {
    if (!lane_mutex_.try_lock()) return;
    const Lock lane(lane_mutex_, kAdoptLock);
    while (!lane_.empty()) {
      auto result = look(*lane_.front());
      if (!result) break;
      std::shared_ptr<Queued> head = std::move(lane_.front());
      lane_.pop_front();
      if (*result) {
        last_complete_.store(head->operation->sequence(), std::memory_order_relaxed);
      } else {
        head->operation->give_up(*running_);
        head->error = head->timed_out ? std::move(head->timed_out) : std::move(*result).error();
        // A mismatch says what each member called.
        std::string& detail = head->error->detail;
        if (detail.find(to_string(head->operation->fingerprint())) == std::string::npos)
          detail.insert(0, describe(*head->operation) + ": ");
      }
      if (head->announced)
        for (const auto& channel : running_->channels)
          if (channel != nullptr) channel->link().waiting_for_flags.fetch_sub(1);
      head->over.store(true, std::memory_order_release);
      if (head.get() != mine) others.push_back(std::move(head));
    }
  }
  if (others.empty()) return;
  for (const auto& queued : others) {
    if (queued->completion == nullptr) continue;
    Result<void> result;
    if (queued->error) result = *queued->error;
    if (auto call = queued->completion->finish(std::move(result)))
      engine()->schedule(std::move(call));
    engine()->note_completed();
  }
  if (!engine()->unusable()) engine()->wake_others();
}

std::string GroupCore::describe(const Operation& operation) const {
  return to_string(operation.fingerprint()) + " on group \"" + name_ + "\"";
}

std::optional<Error> GroupCore::lost(const Epoch& epoch, std::uint32_t rank) const {
  const Lock lock(state_mutex_);
  const auto found = lost_.find(epoch.places[rank]);
  if (found == lost_.end()) return {};
  return error_of_gone(epoch, rank, found->second.error);
}

std::optional<Error> GroupCore::gone(const Epoch& epoch, std::uint32_t rank) const {
  auto error = lost(epoch, rank);
  if (error && !all_arrived_from(epoch, rank)) error.reset();
  return error;
}

std::vector<std::uint32_t> GroupCore::lost_ranks() const {
  std::vector<std::uint32_t> ranks;
  const Lock lock(state_mutex_);
  for (std::uint32_t rank = 0; rank < running_->size(); ++rank)
    if (lost_.contains(running_->places[rank])) ranks.push_back(rank);
  return ranks;
}

void GroupCore::time_out(const std::shared_ptr<Queued>& queued) {
  {
    const Lock lane(lane_mutex_);
    if (queued->over) return;
    Epoch& epoch = *running_;
    Operation& head = *lane_.front()->operation;
    std::string whom;
    for (const std::uint32_t rank : head.waits_for(epoch)) {
      whom += (whom.empty() ? "" : ", ") + epoch.names[rank];
      if (epoch.channels[rank] != nullptr && epoch.channels[rank]->link().suspect())
        whom += " [suspect: no sign of life]";
    }
    Error error{ErrorCode::timeout, "group.collective",
                describe(*queued->operation) + " waits for " +
                    (whom.empty() ? std::string("its own sends") : whom)};
    if (lane_.front() != queued)
      error.detail += ": " + describe(head) + ", called before it, is not done";
    if (fail(epoch, error, self_, kAll)) queued->timed_out = std::move(error);
  }
  const Queued* const mine = queued->completion == nullptr ? queued.get() : nullptr;
  while (!queued->over) advance_lane(mine);
  engine()->wake_others();
}

// Failure

bool GroupCore::fail(const Epoch& epoch, const Error& error, std::uint32_t blamed,
                     std::uint64_t first) {
  {
    const Lock lock(state_mutex_);
    if (first >= ends_at_ || &epoch != epoch_.get()) return false;
    failure_ = error;
    failure_word_.reset();
    ends_at_.store(first, std::memory_order_release);
    said_ = first;
  }
  say_all({.kind = EnvelopeKind::abort,
           .from = self_,
           .epoch = epoch.number(),
           .sequence = first,
           .extra = blamed,
           .tag = static_cast<std::uint32_t>(error.code)},
          as_bytes(error.detail));
  return true;
}

// Where this member has ended its epoch, and why: by whoever said it first.
GroupCore::AbortWord GroupCore::own_word() const {
  AbortWord word;
  if (failure_word_) {
    word = *failure_word_;
  } else {
    word.text = failure_->detail;
    word.envelope = {.kind = EnvelopeKind::abort,
                     .from = self_,
                     .epoch = epoch_->number(),
                     .extra = self_,
                     .tag = static_cast<std::uint32_t>(failure_->code)};
  }
  word.envelope.sequence = ends_at_;
  return word;
}

void GroupCore::say_all(Envelope envelope, Bytes body) {
  envelope.group = id_;
  if (envelope.epoch == 0) envelope.epoch = epoch()->number();
  for (std::uint32_t place = 0; place < mesh_places_.size(); ++place)
    if (place != self_) say(place, envelope, body);
}

// To who can be reached.
void GroupCore::say(std::uint32_t place, const Envelope& envelope, Bytes body) const {
  const auto channel = channel_of(place);
  if (channel != nullptr && !channel->lost()) channel->post(envelope, body);
}

void GroupCore::say_agreement() {
  std::vector<Agreement::Outgoing> outgoing;
  bool tick = false;
  {
    const Lock lock(state_mutex_);
    outgoing = agreement_.take_outgoing();
    if (agreement_.unsettled() && !ticking_) tick = ticking_ = true;
  }
  for (const auto& [to, message] : outgoing)
    say(to.value, {.kind = EnvelopeKind::agreement, .from = self_, .group = id_}, encode(message));
  if (tick) (void)engine()->add_timed(Deadline(kRetry), weak_from_this());
}

void GroupCore::on_time() {
  if (left_ || engine()->unusable()) return;
  {
    const Lock lock(state_mutex_);
    ticking_ = false;
    agreement_.tick(Agreement::Clock::now());
    follow_view();
  }
  say_agreement();
}

void GroupCore::on_lost(std::uint32_t mesh_place, const Channel& channel, const Error& error,
                        Absence how) {
  const auto place = place_of(mesh_place);
  if (!place) return;
  const bool in_order = error.code == ErrorCode::end_of_stream;
  bool member = false;
  bool again = false;
  std::string name;
  std::shared_ptr<Epoch> now;
  // This Context ends: it is this member that goes, which the others hear from their links.
  const bool ending = engine()->unusable();
  {
    const Lock lock(state_mutex_);
    losses_heard_.fetch_add(1, std::memory_order_release);  // who has seen it waits for this lock
    now = epoch_;
    const std::uint32_t rank = index_of(epoch_->places, *place);
    const auto gone = channel.shared_from_this();
    member = rank < epoch_->size() && epoch_->channels[rank] == gone;
    const bool in_view = seats_[*place] == gone;
    const auto current = channel_of(*place);
    // Of a process that was replaced since, here and in the agreement.
    if (!member && !in_view && current != gone) return;
    const auto known = lost_.find(*place);
    again = known != lost_.end() && known->second.channel == gone;
    // Proved only now: a side that was too few to go on may be enough.
    const bool proved_now = again && in_view && how == Absence::proved && known->second.how != how;
    if (again && !proved_now) return;
    const bool messages_dropped = again && known->second.messages_dropped;
    // Of several at this place the member counts, then the one that came last.
    const bool known_counts =
        !again && !in_view && known != lost_.end() &&
        (known->second.channel == seats_[*place] || known->second.channel == current);
    if (!known_counts) lost_.insert_or_assign(*place, Loss{error, gone, how, messages_dropped});
    if (ending) return;
    // Who waits for a place that another still has says nothing of that one when it goes.
    const bool is_free = !agreement_.view().members[*place];
    if (in_view || (is_free && current == gone)) {
      // It may have seen that epoch complete, which then is so for everybody.
      if (in_order && ready_.contains(*place) && ready_[*place].number > epoch_->number())
        left_early_.insert_or_assign(*place, gone);
      else
        miss(*place, how);
    }
    name = member ? epoch_->names[rank] : mesh_->name_of(mesh_place);
  }
  say_agreement();
  // Who has left in order may have done all that is asked of it: only what waits for it fails.
  if (in_order || !member || again) return;
  Error lost = error;
  lost.code = ErrorCode::peer_lost;
  lost.where = "group";
  lost.detail = name + " was lost: " + error.detail;
  (void)fail(*now, lost, *place, kAll);
}

// It is left out of the next epoch.
void GroupCore::miss(std::uint32_t place, Absence how) {
  agreement_.set_absent(GroupRank{place}, how, Agreement::Clock::now());
  miss_early();
}

void GroupCore::miss_early() {
  for (const auto& [place, channel] : std::exchange(left_early_, {}))
    if (seats_[place] == channel)
      agreement_.set_absent(GroupRank{place}, Absence::proved, Agreement::Clock::now());
  follow_view();
}

// In a new view the agreement does not know who is out of reach.
void GroupCore::follow_view() {
  while (followed_view_ != agreement_.view().epoch) {
    const View view = agreement_.view();
    const bool is_next = view.epoch == followed_view_ + 1;
    followed_view_ = view.epoch;
    for (std::uint32_t place = 0; place < mesh_places_.size(); ++place) {
      if (place == self_) continue;
      std::shared_ptr<Channel>& seat = seats_[place];
      if (!view.members[place]) {
        seat = nullptr;
        ready_.erase(place);
        continue;
      }
      if (seat == nullptr || !is_next) seat = channel_of(place);
      const auto lost = lost_.find(place);
      if (lost == lost_.end() || lost->second.channel != seat) continue;
      if (!left_early_.contains(place))
        agreement_.set_absent(GroupRank{place}, lost->second.how, Agreement::Clock::now());
    }
  }
}

// Whoever has come in the place of another takes part from the next epoch on. Returns whether
// somebody did.
bool GroupCore::admit_newcomers() {
  bool any = false;
  for (std::uint32_t place = 0; place < mesh_places_.size(); ++place) {
    if (place == self_ || agreement_.view().members[place] || agreement_.admitted()[place])
      continue;
    // Not the one that was left out, whom this member may still take to be there.
    const auto channel = channel_of(place);
    const std::uint32_t rank = index_of(epoch_->places, place);
    if (rank < epoch_->size() && epoch_->channels[rank] == channel) continue;
    const auto lost = lost_.find(place);
    if (lost != lost_.end() && lost->second.channel == channel) continue;
    if (!mesh_->here(mesh_places_[place])) continue;
    agreement_.admit(GroupRank{place}, Agreement::Clock::now());
    any = true;
  }
  return any;
}

// "rank 1, rank 3": of the first epoch.
std::string GroupCore::empty_places() const {
  std::string text;
  for (std::uint32_t place = 0; place < mesh_places_.size(); ++place) {
    if (agreement_.view().members[place]) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(mesh_places_[place]);
  }
  return text;
}

// What members say

void GroupCore::on_inbound(std::uint32_t mesh_place, InboundMessage&& inbound) {
  const auto place = place_of(mesh_place);
  if (!place) return;
  switch (inbound.envelope.kind) {
    case EnvelopeKind::ready:
      return on_ready(*place, inbound.envelope);
    case EnvelopeKind::abort:
      return on_abort(inbound);
    case EnvelopeKind::left:
      if (const auto channel = channel_of(*place))
        on_lost(mesh_place, *channel,
                Error{ErrorCode::end_of_stream, "group", "it has left the group"}, Absence::proved);
      return;
    case EnvelopeKind::agreement: {
      const auto message = decode_agreement(inbound.payload(), mesh_places_.size());
      if (!message) return;
      {
        const Lock lock(state_mutex_);
        const bool denies = message->kind == AgreementMessage::Kind::refuse &&
                            message->mask.any() && message->epoch == agreement_.view().epoch;
        agreement_.receive(GroupRank{*place}, *message, Agreement::Clock::now());
        // The member was the one before it. Is that one proved dead?
        const auto lost = lost_.find(*place);
        if (denies && lost != lost_.end() && lost->second.how == Absence::proved)
          agreement_.set_absent(GroupRank{*place}, Absence::proved, Agreement::Clock::now());
        follow_view();
      }
      return say_agreement();
    }
    case EnvelopeKind::collective:
      return on_step(*place, std::move(inbound));
    case EnvelopeKind::message:
      return messages_.put(*place, std::move(inbound));
    case EnvelopeKind::join:
    case EnvelopeKind::neighbour:
    case EnvelopeKind::hello:
    case EnvelopeKind::refuse:
      return;
  }
}

void GroupCore::on_ready(std::uint32_t place, const Envelope& envelope) {
  std::optional<Envelope> again;
  {
    const Lock lock(state_mutex_);
    const Ready said{envelope.epoch, envelope.extra, envelope.sequence, envelope.count};
    Ready& latest = ready_[place];
    if (said.number < latest.number) return;
    latest = said;
    // Whoever is ready for a later one has been in the one that is entered here.
    if (next_ != nullptr && said.number == next_->number()) {
      const std::uint32_t rank = index_of(next_->places, place);
      if (rank < next_->size()) next_->ready[rank] = said;
    }
    // It missed what this member said when it entered.
    if (ends_at_ == kRuns && envelope.epoch == epoch_->number()) {
      again = ready_word();
    }
  }
  if (again) say(place, *again);
}

// Of what this member is ready for.
Envelope GroupCore::ready_word() {
  const Ready& ready = ready_[self_];
  return {.kind = EnvelopeKind::ready,
          .from = self_,
          .group = id_,
          .epoch = ready.number,
          .sequence = ready.issued,
          .count = ready.completed,
          .extra = ready.board};
}

void GroupCore::on_abort(const InboundMessage& inbound) {
  AbortWord word{inbound.envelope, cleaned(inbound.text())};
  const std::uint64_t first = inbound.envelope.sequence;
  std::optional<AbortWord> answer;
  {
    Lock lock(state_mutex_);
    const std::uint64_t now = epoch_->number();
    if (inbound.envelope.epoch > now) {
      if (keep_early(std::move(word))) return;
      lock.unlock();
      if (const auto channel = inbound.channel.lock())
        channel->violation("aborts of epochs that nobody can be in");
      return;
    }
    // Before the first epoch there is none to end, whatever a peer says.
    if (inbound.envelope.epoch != now || left_ || epochs_entered_ == 0) return;
    if (first < ends_at_) {
      failure_ = error_of(word, *epoch_);
      failure_word_ = std::move(word);
      ends_at_.store(first, std::memory_order_release);
    }
    said_ = std::min(said_, first);
    // It ended earlier here, which nobody had to know before.
    if (ends_at_ < said_) {
      answer = own_word();
      said_ = ends_at_;
    }
  }
  if (answer) say_all(answer->envelope, as_bytes(answer->text));
}

Error GroupCore::error_of(const AbortWord& word, const Epoch& epoch) {
  const auto code = code_from_peer(word.envelope.tag, PeerSays::epoch);
  Error error{code.value_or(ErrorCode::group_aborted), "group.abort", word.text};
  // A loss reads the same on all members; what else a member says is its own word.
  const std::uint32_t rank = index_of(epoch.places, word.envelope.from);
  if (error.code != ErrorCode::peer_lost && error.code != ErrorCode::mismatch &&
      rank < epoch.size())
    error.detail = epoch.names[rank] + " ended it: " + error.detail;
  return error;
}

// An epoch that is over for others before this member enters it. False: too many epochs.
bool GroupCore::keep_early(AbortWord word) {
  const auto known = early_aborts_.find(word.envelope.epoch);
  if (known == early_aborts_.end() && early_aborts_.size() >= kMostEarlyEpochs) return false;
  if (known == early_aborts_.end())
    early_aborts_.emplace(word.envelope.epoch, std::move(word));
  else if (word.envelope.sequence < known->second.envelope.sequence)
    known->second = std::move(word);
  return true;
}

// Likewise. What is beyond the limit is not kept: the epoch ends there.
bool GroupCore::keep_early(std::uint32_t place, InboundMessage&& inbound) {
  const std::uint64_t number = inbound.envelope.epoch;
  if (!early_steps_.contains(number) && early_steps_.size() >= kMostEarlyEpochs) return false;
  EarlySteps& early = early_steps_[number];
  early.size_bytes += inbound.size_bytes + kEarlyStepCostBytes;
  if (early.size_bytes <= kMostEarlyBytes) {
    early.steps.emplace_back(place, std::move(inbound));
    return true;
  }
  AbortWord word;
  word.envelope = {.kind = EnvelopeKind::abort,
                   .from = self_,
                   .epoch = number,
                   .sequence = fingerprint_of(inbound.envelope).sequence,
                   .extra = self_};
  word.text = "more than " + std::to_string(kMostEarlyBytes >> 20) +
              " MiB of collectives came before it had entered the epoch that they are of";
  return keep_early(std::move(word));
}

void GroupCore::on_step(std::uint32_t place, InboundMessage&& inbound) {
  std::shared_ptr<Epoch> now;
  {
    Lock lock(state_mutex_);
    now = epoch_;
    if (inbound.envelope.epoch > now->number()) {
      const auto channel = inbound.channel.lock();
      if (keep_early(place, std::move(inbound))) return;
      lock.unlock();
      if (channel != nullptr) channel->violation("steps of epochs that nobody can be in");
      return;
    }
  }
  if (inbound.envelope.epoch != now->number()) return;  // of an epoch that is over
  const std::uint32_t rank = index_of(now->places, place);
  if (rank == now->size()) return;
  const Lock lock(now->inbox_mutex);
  now->inbox[rank].push_back(std::move(inbound));
}

// Work

bool GroupCore::progress() {
  if (left_) return false;
  advance_lane(nullptr);
  return true;
}

bool GroupCore::has_input() const noexcept {
  if (!lane_mutex_.try_lock()) return true;
  const Lock lane(lane_mutex_, kAdoptLock);
  if (lane_.empty()) return false;
  Operation& head = *lane_.front()->operation;
  return head.sequence() >= ends_at_.load(std::memory_order_acquire) ||
         losses_heard_.load(std::memory_order_acquire) != looked_at_ || head.has_input(*running_);
}

// Pool memory

PoolPlace GroupCore::pool_place(const Epoch& epoch, const Flat& tensors) {
  if (tensors.runs().size() != 1) return {};
  const Flat::Run& run = tensors.runs().front();
  auto location = engine()->pool()->locate({run.data, run.size_bytes});
  if (!location) return {};
  for (const std::uint32_t place : epoch.places) {
    if (place == self_) continue;
    const auto shown = mesh_->publish(mesh_places_[place], location->segment);
    if (!shown || !*shown) return {};
  }
  return {mesh_->name_segment(location->segment), location->offset};
}

PoolReader GroupCore::pool_reader(std::shared_ptr<Epoch> epoch) {
  return [epoch = std::move(epoch)](std::uint32_t member, PoolPlace place,
                                    std::uint64_t size_bytes) -> std::shared_ptr<const std::byte> {
    auto segment = epoch->channels[member]->published().find(place.segment_id);
    if (segment == nullptr) return nullptr;
    if (place.offset > segment->size_bytes() || size_bytes > segment->size_bytes() - place.offset)
      return nullptr;
    const std::byte* const at = segment->data() + place.offset;
    return {std::move(segment), at};
  };
}

}  // namespace tendon::v0::detail
