// SPDX-License-Identifier: Apache-2.0
// How a member enters the next epoch of its group.
#include <algorithm>

#include "core/failpoint.hpp"
#include "group/epochs/group_core.hpp"
#include "group/epochs/tuning.hpp"
#include "group/membership/fence.hpp"
#include "transport/shared_memory_link.hpp"

namespace tendon::v0::detail {
namespace {

// The interval of looks for a process in the place of rank 0.
constexpr auto kLook = std::chrono::milliseconds(200);

}  // namespace

std::shared_ptr<Epoch> GroupCore::build(const View& view, std::uint32_t attempt) {
  auto next = std::make_shared<Epoch>();
  std::vector<std::string> hosts;
  next->view = view.epoch;
  next->attempt = attempt;
  for (const GroupPlace place : mesh_places_.numbers()) {
    if (!view.members[place.value]) continue;
    if (place == self_) next->self = GroupRank{next->size()};
    next->places.push_back(place);
    next->channels.push_back(place == self_ ? nullptr : channel_of(place));
    // Each member's own word, so the same on all members. Which memory a member can reach differs
    // between members.
    hosts.push_back(place == self_ ? context()->identity().host
                                   : channel_of(place)->link().peer().host);
    std::string name = mesh_->name_of(mesh_places_[place]);
    // "rank 3 (...)": its rank in this epoch.
    name.replace(0, name.find(" (") == std::string::npos ? name.size() : name.find(" ("),
                 "rank " + std::to_string(next->size() - 1));
    next->names.push_back(std::move(name));
  }
  next->hosts = Hosts(hosts);
  {
    const Lock inbox(next->inbox_mutex);
    next->inbox.resize(next->size());
  }
  next->ready.resize(next->size());
  return next;
}

// Shows the board to all members; false: not now.
Result<bool> GroupCore::show_board(const Epoch& epoch) {
  if (epoch.board == nullptr || TENDON_FAILPOINT("group.board.before_show")) return true;
  for (const GroupRank rank : epoch.ranks()) {
    if (rank == epoch.self || epoch.channels[rank]->lost()) continue;
    TENDON_TRY(shown, mesh_->publish(mesh_places_[epoch.places[rank]], epoch.board->segment()));
    if (!shown) return false;
  }
  return true;
}

// True if all members are ready for this epoch, with a board that is here.
bool GroupCore::complete(Epoch& epoch) {
  bool boards = epoch.board != nullptr;
  for (const Ready& ready : epoch.ready) {
    if (ready.number == 0) return false;
    boards = boards && ready.board != 0;
  }
  if (!boards) {
    // Some member cannot reach another's memory: all use links.
    epoch.board = nullptr;
    return true;
  }
  for (const GroupRank rank : epoch.ranks()) {
    if (rank == epoch.self) continue;
    auto segment = epoch.channels[rank]->published().look(epoch.ready[rank].board);
    if (!segment) epoch.refused_boards.push_back(rank);
    if (!segment || *segment == nullptr) return false;
    if (!epoch.board->attach(rank.value, *std::move(segment))) {
      epoch.channels[rank]->published().remove(epoch.ready[rank].board);
      epoch.refused_boards.push_back(rank);
      return false;
    }
  }
  return true;
}

// True if a member that said it is ready was lost before its board arrived, or if a board was
// refused or cannot be mapped.
bool GroupCore::board_never_comes(const Epoch& epoch) const {
  if (!epoch.refused_boards.empty()) return true;
  for (const GroupRank rank : epoch.ranks()) {
    if (rank == epoch.self || !epoch.channels[rank]->link().ended()) continue;
    if (epoch.channels[rank]->published().find(epoch.ready[rank].board) == nullptr) return true;
  }
  return false;
}

// A process in another's place can send as soon as this member is ready too, so the messages of the
// earlier process are dropped first.
void GroupCore::drop_messages_of_replaced() {
  for (const GroupPlace place : seats_.take_replaced()) messages_.drop(place);
}

void GroupCore::install(const std::shared_ptr<Epoch>& next) {
  std::shared_ptr<Epoch> last;
  std::optional<AbortWord> word;
  std::vector<Seats::Loss> replaced;  // each may end a link, which takes a lock of its own
  {
    const Lock calls(calls_.mutex());
    const Lock lock(state_mutex_);
    last = std::exchange(epoch_, next);
    next_.reset();
    calls_.begin(next);
    subgroups_made_.clear();
    end_.begin();
    given_.clear();
    EarlyWords::OfEpoch early = early_.take(next->number());
    if (early.abort) {
      const std::uint64_t first = early.abort->envelope.sequence;
      if (early.abort->envelope.from.in_group() != self_) end_.note_told(first);
      Error why = error_of(*early.abort, *next);
      (void)end_.end(first, std::move(why), std::move(early.abort));
    }
    // A member in the place of a lost one is not lost.
    drop_messages_of_replaced();
    replaced = seats_.forget_replaced();
    for (const auto& [place, loss] : seats_.losses()) {
      const auto rank = next->rank_at(place);
      if (!rank || loss.in_order()) continue;
      (void)end_.end(EpochEnd::kAll, {ErrorCode::peer_lost, "group",
                                      next->names[*rank] + " was lost: " + loss.error.detail});
    }
    // A member that still has its link to the lost one would wait.
    if (end_.must_tell()) word = end_.tell(self_, next->number());
    {
      const Lock inbox(next->inbox_mutex);
      for (auto& [place, inbound] : early.steps) {
        const auto rank = next->rank_at(place);
        if (rank) next->inbox[*rank].push_back(std::move(inbound));
      }
    }
    seats_.miss_early();
    ++epochs_entered_;
  }
  if (word) say_all(word->envelope, as_bytes(word->text));
  say_agreement();
  if (last->board != nullptr) mesh_->forget_segment(last->board->segment());
  // The board holds the mappings; their names are not needed any more.
  for (const GroupRank rank : next->ranks())
    if (rank != next->self && next->ready[rank].board != 0)
      next->channels[rank]->published().remove(next->ready[rank].board);
}

// Stops calls in this epoch. Earlier calls end first; in a shrink, which follows a failure, at
// once.
Result<void> GroupCore::end_epoch(Of members, Deadline deadline, std::string_view where) {
  TENDON_CHECK(context()->usable(where));
  const auto under_way = members == Of::everybody || members == Of::those_left ? UnderWay::ends_here
                                                                               : UnderWay::goes_on;
  const bool ended = context()->wait(nullptr, deadline, [&] {
    calls_.advance();
    return end_calls(under_way) || context()->unusable();
  });
  TENDON_CHECK(context()->usable(where));
  if (ended) return {};
  return Error{ErrorCode::timeout, where,
               "group \"" + name_ + "\" still has operations of this epoch under way"};
}

// Stops additions to the call queue, once it is empty or must be. Returns whether it is empty.
bool GroupCore::end_calls(UnderWay under_way) {
  const Lock calls(calls_.mutex());
  if (!calls_.empty() && under_way == UnderWay::goes_on) return false;
  const std::uint64_t first = calls_.first_open();
  std::optional<AbortWord> word;
  {
    const Lock lock(state_mutex_);
    if (first < end_.first()) {
      end_.end_unless_known(first,
                            {ErrorCode::group_aborted, "group", "the next one is being made"});
      // In an epoch that did not fail all members arrive here after the same operations: nobody has
      // to be told, unless a member says otherwise.
      if (end_.any_told() || !calls_.empty()) word = end_.tell(self_, epoch_->number());
    }
  }
  if (word) say_all(word->envelope, as_bytes(word->text));
  calls_.drop_dead_steps();
  return calls_.empty();
}

/// One member's way into the next epoch, which may change meanwhile.
class GroupCore::Entering {
 public:
  Entering(GroupCore& core, Of members, std::string_view where)
      : core_(core), members_(members), where_(where) {
    // An epoch whose entry was abandoned before the others were ready. They may have entered it
    // since: they have its board.
    const Lock lock(core_.state_mutex_);
    next_ = core_.next_;
    shown_ = next_ != nullptr && next_->ready[next_->self].number != 0;
  }

  /// Checks the state once. True: the epoch is complete, even if a member was lost since: the first
  /// operation finds that.
  Result<bool> look() {
    bool board_lost = false;
    {
      const Lock lock(core_.state_mutex_);
      if (shown_) {
        if (core_.complete(*next_)) return true;
        // All are ready and only a board is on its way. A member that left since has shown its
        // board before, unless it died meanwhile.
        if (missing().empty()) {
          board_lost = core_.board_never_comes(*next_);
          if (!board_lost) return false;
          core_.seats_.miss_early();
        } else if (is_over_for_others()) {
          return false;
        }
      }
    }
    if (board_lost) {
      // The board's owner is lost, as after every other lie.
      for (const GroupRank rank : next_->refused_boards) {
        MemberChannel& channel = *next_->channels[rank];
        if (const auto why = channel.published().failure(next_->ready[rank].board))
          channel.lose_unreadable(*why);
        else
          channel.violation("a board of another group or epoch");
      }
      core_.say_agreement();
    }
    TENDON_TRY(aim, agreed());
    if (!aim) return false;
    has_aim_ = true;
    if (next_ == nullptr || next_->view != aim->view.epoch || next_->attempt != aim->attempt) {
      if (shown_ && may_run_already(aim->view)) return false;
      if (shown_) tell_that_it_fails();
      TENDON_CHECK(is_whole_if_it_must(aim->view));
      TENDON_CHECK(make(*aim));
    }
    if (!shown_) {
      TENDON_TRY(shown, show());
      if (!shown) return false;
    }
    const Lock lock(core_.state_mutex_);
    return core_.complete(*next_);
  }

  /// False: it is left over from an abandoned call, and this one asks for more.
  [[nodiscard]] bool is_asked_for() const {
    return members_ != Of::every_place || next_->size() == core_.mesh_places_.size();
  }

  /// The members whose word is missing, in the epoch or before that in the agreement.
  [[nodiscard]] std::vector<AwaitedMember<std::shared_ptr<MemberChannel>>> awaited() const {
    std::vector<AwaitedMember<std::shared_ptr<MemberChannel>>> awaited;
    const Lock lock(core_.state_mutex_);
    // In the agreement members answer without a call. A heard member that does not answer waits for
    // one that is not heard.
    using Newcomers = Agreement::Newcomers;
    const MemberMask voters = core_.seats_.agreement().awaited(
        takes_newcomers() ? Newcomers::wanted : Newcomers::not_wanted);
    const MemberMask asked =
        voters | (core_.seats_.agreement().view().members & ~core_.seats_.agreement().absent());
    for (const GroupPlace place : core_.mesh_places_.numbers()) {
      if (voters.none() || !asked[place.value] || place == core_.self_) continue;
      const auto& seat = core_.seats_.at(place);
      const auto channel = seat != nullptr ? seat : core_.channel_of(place);
      if (channel != nullptr && channel->link().suspect()) awaited.push_back({channel, true});
    }
    if (voters.any() || !has_aim_) return awaited;
    for (const GroupRank rank : missing()) {
      const auto& channel = next_->channels[rank];
      if (channel != nullptr) awaited.push_back({channel, channel->link().suspect()});
    }
    return awaited;
  }

  void kill(const std::vector<std::shared_ptr<MemberChannel>>& hung) {
    for (const auto& channel : hung)
      if (auto* const memory = channel->link().shared_memory(); memory && memory->kill_peer())
        killed_ += (killed_.empty() ? "" : ", ") + channel->link().peer_name();
  }
  [[nodiscard]] bool has_killed() const noexcept { return !killed_.empty(); }

  [[nodiscard]] Error timed_out() const {
    Error error = why_late();
    if (has_killed()) error.detail += "; killed at the deadline: " + killed_ + "; call it again";
    return error;
  }

  [[nodiscard]] std::shared_ptr<Epoch> take() { return std::move(next_); }

 private:
  struct Aim {
    View view;
    std::uint32_t attempt = 0;
  };

  [[nodiscard]] Error why_late() const {
    const Lock lock(core_.state_mutex_);
    const std::string group = "group \"" + core_.name_ + "\"";
    const auto& seats = core_.seats_.agreement().view().members;
    if (seats.none()) {
      return Error{ErrorCode::timeout, where_,
                   "this process has come in the place of rank " +
                       std::to_string(core_.mesh_places_[core_.self_].value) + " of " + group +
                       ", whose members have not called grow() or rebuild() in time"};
    }
    const bool alone = core_.seats_.agreement().state() == Agreement::State::no_quorum;
    // Too few members to continue admit nobody either.
    if (!alone && members_ == Of::every_place && seats.count() != core_.mesh_places_.size()) {
      return Error{ErrorCode::timeout, where_,
                   group + " still waits for a process in the place of " + core_.empty_places()};
    }
    if (alone || !has_aim_) {
      return Error{alone ? ErrorCode::no_quorum : ErrorCode::timeout, where_,
                   group + ": " +
                       std::to_string((seats & ~core_.seats_.agreement().absent()).count()) +
                       " of " + std::to_string(seats.count()) + " members can be reached" +
                       (alone ? ", too few to go on"
                              : "; they have not agreed on the members that are left")};
    }
    std::string names;
    bool all_here = true;
    for (const GroupRank rank : missing()) {
      names += (names.empty() ? "" : ", ") + next_->names[rank];
      all_here = all_here && core_.mesh_->on_this_host(core_.mesh_places_[next_->places[rank]]);
    }
    if (names.empty()) {
      return Error{ErrorCode::timeout, where_,
                   group + ": all members are ready, and the memory of one did not come"};
    }
    return Error{
        ErrorCode::timeout, where_,
        group + " waits for " + names + ": not ready before the deadline" +
            (members_ == Of::those_left && all_here
                 ? "; with a fence (Fence::kill, fence=\"kill\") shrink kills what is on "
                   "this host and is silent or was waited for, for " +
                       std::to_string(kSuspectAfter.count()) + " s at its deadline, and goes on"
                 : "") +
            (where_ == "group.subgroup"
                 ? "; all members of it give the same ranks in the same order"
                 : "")};
  }

  bool takes_newcomers() const { return members_ == Of::those_here || members_ == Of::every_place; }

  // Ranks of the members that have not said that they are ready for it.
  std::vector<GroupRank> missing() const TENDON_REQUIRES(core_.state_mutex_) {
    std::vector<GroupRank> ranks;
    for (const GroupRank rank : next_->ranks())
      if (next_->ready[rank].number == 0) ranks.push_back(rank);
    return ranks;
  }

  // True if others may run it already. Then this member enters it first.
  bool may_run_already(const View& agreed) const TENDON_EXCLUDES(core_.state_mutex_) {
    const Lock lock(core_.state_mutex_);
    return core_.seats_.may_run_already(*next_, agreed);
  }

  // A member that has heard all others waits in it for this one, which alone may have lost another.
  void tell_that_it_fails() const {
    Envelope word{.kind = EnvelopeKind::abort,
                  .from = core_.self_,
                  .epoch = next_->number(),
                  .sequence = EpochEnd::kAll,
                  .extra = core_.self_.value,
                  .tag = static_cast<std::uint32_t>(ErrorCode::peer_lost)};
    std::string why;
    {
      const Lock lock(core_.state_mutex_);
      for (const GroupRank rank : next_->places.numbers()) {
        const Seats::Loss* const loss = core_.seats_.loss_at(next_->places[rank]);
        if (loss == nullptr || loss->channel != next_->channels[rank]) continue;
        why = next_->names[rank] + " was lost: " + loss->error.detail;
        word.extra = next_->places[rank].value;
      }
    }
    if (!why.empty()) core_.say_all(word, as_bytes(why));
  }

  bool is_over_for_others() const TENDON_REQUIRES(core_.state_mutex_) {
    std::vector<GroupPlace> places;
    for (const GroupRank rank : missing()) places.push_back(next_->places[rank]);
    return core_.seats_.is_over_for_others(*next_, places);
  }

  // The epoch that the members have agreed to enter; empty before they have.
  Result<std::optional<Aim>> agreed() {
    std::optional<Aim> aim;
    bool admitted = false;
    {
      const Lock lock(core_.state_mutex_);
      TENDON_CHECK(still_possible());
      admitted = takes_newcomers() && core_.seats_.admit_newcomers(*core_.epoch_);
      const View& view = core_.seats_.agreement().view();
      const bool open = (view.members & core_.seats_.agreement().absent()).any() ||
                        core_.seats_.agreement().leading() || view.members.none();
      const bool full = view.members.count() == core_.mesh_places_.size();
      // A newcomer may learn of a member before it has connected to it.
      bool reached = true;
      for (const GroupPlace place : core_.mesh_places_.numbers())
        if (view.members[place.value] && place != core_.self_)
          reached = reached && core_.channel_of(place) != nullptr;
      if (!open && reached && (full || members_ != Of::every_place)) {
        const Epoch& now = *core_.epoch_;
        // Or a member was further in this view before it failed again.
        aim = Aim{view, std::max(view.epoch == now.view ? now.attempt + 1 : 0,
                                 core_.seats_.latest_attempt(view.epoch))};
      }
    }
    if (admitted) core_.say_agreement();
    return aim;
  }

  Result<void> still_possible() const TENDON_REQUIRES(core_.state_mutex_) {
    if (members_ == Of::everybody) {
      // A member that heard of that earlier does not arrive here.
      const auto parent = core_.parent_.lock();
      if (parent != nullptr && parent->has_ended())
        if (auto why = parent->failure("a group made in it")) return *std::move(why);
      if (const auto place = core_.seats_.first_missing()) {
        return Error{ErrorCode::peer_lost, where_,
                     core_.mesh_->name_of(core_.mesh_places_[*place]) +
                         " was lost before the group was complete: " +
                         core_.seats_.loss_at(*place)->error.detail};
      }
    }
    const MemberMask here =
        core_.seats_.agreement().view().members & ~core_.seats_.agreement().absent();
    // A newcomer joins the group at the rendezvous, and knows of no other one.
    if (members_ == Of::every_place && core_.id_ != core_.mesh_->first_group() &&
        here.count() != core_.mesh_places_.size()) {
      return Error{ErrorCode::invalid_argument, where_,
                   "group \"" + core_.name_ +
                       "\" was made by split() or subgroup(): no process can "
                       "come in the place of " +
                       core_.empty_places() +
                       "; rebuild the group that was joined, drop this one and make it again"};
    }
    if (core_.seats_.agreement().view().members.none() && core_.mesh_->came_too_late()) {
      return Error{ErrorCode::peer_lost, where_,
                   "the members of group \"" + core_.name_ +
                       "\" went before they called grow() or rebuild() for this process"};
    }
    if (core_.seats_.agreement().state() != Agreement::State::evicted) return {};
    return Error{ErrorCode::peer_lost, where_,
                 "the others went on without this member of group \"" + core_.name_ + "\""};
  }

  // Other members may have lost one that this member has not, and agreed to continue without it.
  Result<void> is_whole_if_it_must(const View& view) const TENDON_EXCLUDES(core_.state_mutex_) {
    if (members_ != Of::everybody || view.members.count() == core_.mesh_places_.size()) return {};
    const Lock lock(core_.state_mutex_);
    return Error{ErrorCode::peer_lost, where_,
                 "other members of group \"" + core_.name_ + "\" have lost " +
                     core_.empty_places() + " before it was complete"};
  }

  Result<void> make(const Aim& aim) {
    if (next_ != nullptr && next_->board != nullptr)
      core_.mesh_->forget_segment(next_->board->segment());
    {
      const Lock lock(core_.state_mutex_);
      core_.drop_messages_of_replaced();
    }
    next_ = core_.build(aim.view, aim.attempt);
    shown_ = false;
    {
      const Lock lock(core_.state_mutex_);
      core_.next_ = next_;
      for (const GroupRank rank : next_->ranks()) {
        const Ready& said = core_.seats_.ready(next_->places[rank]);
        if (said.number == next_->number()) next_->ready[rank] = said;
      }
    }
    const bool here = std::all_of(
        next_->places.begin(), next_->places.end(),
        [&](GroupPlace place) { return core_.mesh_->on_this_host(core_.mesh_places_[place]); });
    if (!here) return {};
    TENDON_TRY(board, Board::create(core_.id_, next_->number(), next_->size(), next_->self.value,
                                    Tuning::get().staging));
    next_->board = std::move(board);
    return {};
  }

  // Shows the board, if there is one, and reports that this member is ready; false: not now.
  Result<bool> show() {
    auto shown = core_.show_board(*next_);
    if (!shown && shown.error().code == ErrorCode::peer_lost) return false;
    if (!shown || !*shown) return shown;
    shown_ = true;
    Envelope word;
    {
      const Lock calls(core_.calls_.mutex());
      const Lock lock(core_.state_mutex_);
      const bool new_here = core_.epochs_entered_ == 0 && core_.mesh_->replacement();
      const Board* const board = next_->board.get();
      next_->ready[next_->self] = {
          next_->number(), board == nullptr ? 0 : core_.mesh_->name_segment(board->segment()),
          core_.calls_.issued(), new_here ? Ready::kNewHere : core_.calls_.last_complete()};
      (void)core_.seats_.hear_ready(core_.self_, next_->ready[next_->self]);
      word = core_.ready_word();
    }
    core_.say_all(word);
    (void)TENDON_FAILPOINT("group.epoch.after_ready");
    return true;
  }

  GroupCore& core_;
  const Of members_;
  const std::string_view where_;
  std::shared_ptr<Epoch> next_;
  bool shown_ = false;    // the board, and the word that this member is ready for it
  bool has_aim_ = false;  // the members have agreed, in this call
  std::string killed_;    // names of members, for the error
};

// False for a newcomer in another's place: the members have to agree on it first.
bool GroupCore::is_admitted() const {
  const Lock lock(state_mutex_);
  return seats_.agreement().view().members.any();
}

Result<void> GroupCore::enter(Deadline deadline, Of members, Fence fence, std::string_view where) {
  for (;;) {
    TENDON_TRY(entered, enter_next(deadline, members, fence, where));
    if (entered) return {};
  }
}

Result<bool> GroupCore::enter_next(Deadline deadline, Of members, Fence fence,
                                   std::string_view where) {
  TENDON_CHECK(end_epoch(members, deadline, where));
  Entering entering(*this, members, where);
  FenceClock<std::shared_ptr<MemberChannel>> fences(deadline);
  Result<bool> looked = false;
  const auto attempt = [&] {
    looked = entering.look();
    if (fence == Fence::kill && looked && !*looked)
      entering.kill(fences.due(entering.awaited(), Deadline::Clock::now()));
    return context()->unusable() || !looked || *looked;
  };
  // A process may take the place of rank 0, and all others have to look for it. These are the
  // members that rebuild, and a newcomer in another place that may have reached them.
  const bool is_newcomer =
      members == Of::those_here && epochs_entered_ == 0 && mesh_->replacement();
  const auto wait = [&](Deadline until) {
    for (;;) {
      if (members != Of::every_place && !is_newcomer)
        return context()->wait(nullptr, until, attempt);
      const Deadline now = earlier(until, Deadline(kLook));
      if (is_admitted())
        mesh_->seek_rank0(now);
      else
        mesh_->look_for_rank0(now);
      if (context()->wait(nullptr, now, attempt)) return true;
      if (until.has_passed()) return false;
    }
  };
  bool done = wait(deadline);
  // The deadline has passed: this look kills.
  if (!done && fence == Fence::kill) done = attempt();
  if (!done && entering.has_killed())
    done = wait(Deadline::at(deadline.time_point() + kFenceGrace));
  TENDON_CHECK(context()->usable(where));
  if (!looked) return std::move(looked).error();
  if (!done) return entering.timed_out();
  const bool is_asked_for = entering.is_asked_for();
  install(entering.take());
  return is_asked_for;
}

}  // namespace tendon::v0::detail
