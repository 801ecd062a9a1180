// SPDX-License-Identifier: Apache-2.0
// How a member enters the next epoch of its group.
#include <algorithm>
#include <map>

#include "core/failpoint.hpp"
#include "group/fence.hpp"
#include "group/group_core.hpp"
#include "group/tuning.hpp"

namespace tendon::v0::detail {
namespace {

// How often a process in the place of rank 0 is looked for.
constexpr auto kLook = std::chrono::milliseconds(200);

}  // namespace

std::shared_ptr<Epoch> GroupCore::build(const View& view, std::uint32_t attempt) {
  auto next = std::make_shared<Epoch>();
  std::vector<std::string> hosts;
  next->view = view.epoch;
  next->attempt = attempt;
  for (std::uint32_t place = 0; place < mesh_places_.size(); ++place) {
    if (!view.members[place]) continue;
    if (place == self_) next->self = next->size();
    next->places.push_back(place);
    next->channels.push_back(place == self_ ? nullptr : channel_of(place));
    // What each says of itself, so the same on all members. Who can reach whose memory is not.
    hosts.push_back(place == self_ ? engine()->identity().host
                                   : channel_of(place)->link().peer().host);
    std::string name = mesh_->name_of(mesh_places_[place]);
    // "rank 3 (...)": by its rank in this epoch.
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

// Shows the board to everybody; false: not now.
Result<bool> GroupCore::show_board(const Epoch& epoch) {
  if (epoch.board == nullptr || TENDON_FAILPOINT("group.board.before_show")) return true;
  for (std::uint32_t rank = 0; rank < epoch.size(); ++rank) {
    if (rank == epoch.self || epoch.channels[rank]->lost()) continue;
    TENDON_TRY(shown, mesh_->publish(mesh_places_[epoch.places[rank]], epoch.board->segment()));
    if (!shown) return false;
  }
  return true;
}

// Is everybody ready for this epoch, with a board that is here?
bool GroupCore::complete(Epoch& epoch) {
  bool boards = epoch.board != nullptr;
  for (const Ready& ready : epoch.ready) {
    if (ready.number == 0) return false;
    boards = boards && ready.board != 0;
  }
  if (!boards) {
    // Somebody is out of reach of somebody's memory: everybody goes by links.
    epoch.board = nullptr;
    return true;
  }
  for (std::uint32_t rank = 0; rank < epoch.size(); ++rank) {
    if (rank == epoch.self) continue;
    auto segment = epoch.channels[rank]->published().find(epoch.ready[rank].board);
    if (segment == nullptr) return false;
    if (!epoch.board->attach(rank, std::move(segment))) {
      epoch.channels[rank]->published().remove(epoch.ready[rank].board);
      epoch.refused_boards.push_back(rank);
      return false;
    }
  }
  return true;
}

// Has somebody gone whose board is not here, although it said that it is ready, or is one refused?
bool GroupCore::board_never_comes(const Epoch& epoch) const {
  if (!epoch.refused_boards.empty()) return true;
  for (std::uint32_t rank = 0; rank < epoch.size(); ++rank) {
    if (rank == epoch.self || !epoch.channels[rank]->link().ended()) continue;
    if (epoch.channels[rank]->published().find(epoch.ready[rank].board) == nullptr) return true;
  }
  return false;
}

// A process that has come in the place of another can send as soon as this member is ready too, so
// what the one before it sent goes first.
void GroupCore::drop_messages_of_replaced() {
  for (auto& [place, loss] : lost_) {
    if (loss.channel == channel_of(place) || std::exchange(loss.messages_dropped, true)) continue;
    messages_.drop(place);
  }
}

void GroupCore::install(std::shared_ptr<Epoch> next) {
  std::shared_ptr<Epoch> last;
  std::optional<AbortWord> word;
  {
    const Lock lane(lane_mutex_);
    const Lock lock(state_mutex_);
    last = std::exchange(epoch_, next);
    running_ = next;
    next_.reset();
    looked_at_ = 0;
    lost_ranks_.clear();
    std::uint64_t complete = Ready::kNewHere;
    for (const Ready& ready : next->ready) {
      issued_ = std::max(issued_, ready.issued);
      complete = std::min(complete, ready.completed);
    }
    complete_everywhere_ = complete == Ready::kNewHere ? 0 : complete;
    if (next->ready[next->self].completed == Ready::kNewHere)
      last_complete_ = complete_everywhere_.load();
    subgroups_made_.clear();
    failure_.reset();
    failure_word_.reset();
    ends_at_ = kRuns;
    said_ = kRuns;
    if (const auto early = early_aborts_.find(next->number()); early != early_aborts_.end()) {
      failure_ = error_of(early->second, *next);
      failure_word_ = early->second;
      ends_at_ = early->second.envelope.sequence;
      if (early->second.envelope.from != self_) said_ = ends_at_;
    }
    std::erase_if(early_aborts_, [&](const auto& entry) { return entry.first <= next->number(); });
    // Whoever has come in the place of somebody who was lost is not lost.
    drop_messages_of_replaced();
    std::erase_if(
        lost_, [&](const auto& entry) { return entry.second.channel != channel_of(entry.first); });
    for (const auto& [place, loss] : lost_) {
      const Error& error = loss.error;
      const auto rank = std::find(next->places.begin(), next->places.end(), place);
      if (rank == next->places.end() || error.code == ErrorCode::end_of_stream) continue;
      failure_ = Error{ErrorCode::peer_lost, "group",
                       next->names[static_cast<std::size_t>(rank - next->places.begin())] +
                           " was lost: " + error.detail};
      failure_word_.reset();
      ends_at_ = kAll;
    }
    // Somebody who still has its link to that one would wait.
    if (ends_at_ < said_) {
      word = own_word();
      said_ = ends_at_;
    }
    if (const auto early = early_steps_.find(next->number()); early != early_steps_.end()) {
      const Lock inbox(next->inbox_mutex);
      for (auto& [place, inbound] : early->second.steps) {
        const auto rank = std::find(next->places.begin(), next->places.end(), place);
        if (rank != next->places.end())
          next->inbox[static_cast<std::size_t>(rank - next->places.begin())].push_back(
              std::move(inbound));
      }
    }
    std::erase_if(early_steps_, [&](const auto& entry) { return entry.first <= next->number(); });
    miss_early();
    ++epochs_entered_;
  }
  if (word) say_all(word->envelope, as_bytes(word->text));
  say_agreement();
  if (last->board != nullptr) mesh_->forget_segment(last->board->segment());
  // The board holds the mappings; their names are not needed any more.
  for (std::uint32_t rank = 0; rank < next->size(); ++rank)
    if (rank != next->self && next->ready[rank].board != 0)
      next->channels[rank]->published().remove(next->ready[rank].board);
}

// Nothing is called in this epoch after this. What was called before ends first; in a shrink, which
// follows a failure, at once.
Result<void> GroupCore::end_epoch(Of members, Deadline deadline, std::string_view where) {
  TENDON_CHECK(engine()->usable(where));
  const bool at_once = members == Of::everybody || members == Of::those_left;
  const bool ended = engine()->wait(nullptr, deadline, [&] {
    advance_lane(nullptr);
    return end_lane(at_once) || engine()->unusable();
  });
  TENDON_CHECK(engine()->usable(where));
  if (ended) return {};
  return Error{ErrorCode::timeout, where,
               "group \"" + name_ + "\" still has operations of this epoch under way"};
}

// Nothing is added to the lane, once it is empty or has to be. Returns whether it is empty.
bool GroupCore::end_lane(bool at_once) {
  const Lock lane(lane_mutex_);
  if (!lane_.empty() && !at_once) return false;
  const std::uint64_t first = lane_.empty() ? issued_ + 1 : lane_.front()->operation->sequence();
  std::optional<AbortWord> word;
  {
    const Lock lock(state_mutex_);
    if (first < ends_at_) {
      if (!failure_)
        failure_ = Error{ErrorCode::group_aborted, "group", "the next one is being made"};
      ends_at_.store(first, std::memory_order_release);
      // In an epoch that did not fail all members come here behind the same operations: nobody has
      // to be told, as long as nobody says otherwise.
      if (said_ != kRuns || !lane_.empty()) {
        word = own_word();
        said_ = first;
      }
    }
  }
  if (word) say_all(word->envelope, as_bytes(word->text));
  return lane_.empty();
}

/// One member's way into the next epoch, which may change while it is on it.
class GroupCore::Entering {
 public:
  Entering(GroupCore& core, Of members, std::string_view where)
      : core_(core), members_(members), where_(where) {
    // One that was given up before the others were ready, who may have entered it since: they have
    // its board.
    const Lock lock(core_.state_mutex_);
    next_ = core_.next_;
    shown_ = next_ != nullptr && next_->ready[next_->self].number != 0;
  }

  /// One look at where things stand. True: the epoch is complete, even if somebody has gone since:
  /// that is for the first operation to find.
  Result<bool> look() {
    bool board_lost = false;
    {
      const Lock lock(core_.state_mutex_);
      if (shown_) {
        if (core_.complete(*next_)) return true;
        // All are ready and only a board is on its way: who left since has shown it before, unless
        // it died on the way.
        if (missing().empty()) {
          board_lost = core_.board_never_comes(*next_);
          if (!board_lost) return false;
          core_.miss_early();
        } else if (is_over_for_others()) {
          return false;
        }
      }
    }
    if (board_lost) {
      // Its member is lost, as with every other lie.
      for (const std::uint32_t rank : next_->refused_boards)
        next_->channels[rank]->violation("a board of another group or epoch");
      core_.say_agreement();
    }
    TENDON_TRY(aim, agreed());
    if (!aim) return false;
    if (next_ == nullptr || next_->view != aim->view.epoch || next_->attempt != aim->attempt)
      TENDON_CHECK(make(*aim));
    is_asked_for_ = true;
    if (!shown_) {
      TENDON_TRY(shown, show());
      if (!shown) return false;
    }
    const Lock lock(core_.state_mutex_);
    return core_.complete(*next_);
  }

  /// False: it is left over from a call that had given up, and this one asks for more.
  [[nodiscard]] bool is_asked_for() const {
    return is_asked_for_ || members_ != Of::every_place ||
           next_->size() == core_.mesh_places_.size();
  }

  /// Those whose word is missing, in the epoch or before that in the agreement.
  [[nodiscard]] std::vector<AwaitedMember<std::shared_ptr<Channel>>> awaited() const {
    std::vector<AwaitedMember<std::shared_ptr<Channel>>> awaited;
    const Lock lock(core_.state_mutex_);
    // In the agreement members answer without a call. One that is heard, and does not, waits for
    // one that is not.
    const MemberMask voters = core_.agreement_.awaited(takes_newcomers());
    const MemberMask asked =
        voters | (core_.agreement_.view().members & ~core_.agreement_.absent());
    for (std::uint32_t place = 0; voters.any() && place < core_.mesh_places_.size(); ++place) {
      if (!asked[place] || place == core_.self_) continue;
      const auto& seat = core_.seats_[place];
      const auto channel = seat != nullptr ? seat : core_.channel_of(place);
      if (channel != nullptr && channel->link().suspect()) awaited.push_back({channel, true});
    }
    if (voters.any() || !is_asked_for_) return awaited;
    for (const std::uint32_t rank : missing()) {
      const auto& channel = next_->channels[rank];
      if (channel != nullptr) awaited.push_back({channel, channel->link().suspect()});
    }
    return awaited;
  }

  void kill(const std::vector<std::shared_ptr<Channel>>& hung) {
    for (const auto& channel : hung)
      if (channel->link().kill_peer())
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
    const auto& seats = core_.agreement_.view().members;
    if (seats.none()) {
      return Error{ErrorCode::timeout, where_,
                   "this process has come in the place of rank " +
                       std::to_string(core_.mesh_places_[core_.self_]) + " of " + group +
                       ", whose members have not called grow() or rebuild() in time"};
    }
    if (members_ == Of::every_place && seats.count() != core_.mesh_places_.size()) {
      return Error{ErrorCode::timeout, where_,
                   group + " still waits for a process in the place of " + core_.empty_places()};
    }
    const bool alone = core_.agreement_.state() == Agreement::State::no_quorum;
    if (alone || !is_asked_for_) {
      return Error{alone ? ErrorCode::no_quorum : ErrorCode::timeout, where_,
                   group + ": " + std::to_string((seats & ~core_.agreement_.absent()).count()) +
                       " of " + std::to_string(seats.count()) + " members can be reached" +
                       (alone ? ", too few to go on" : "; they have not agreed on who is left")};
    }
    std::string names;
    bool all_here = true;
    for (const std::uint32_t rank : missing()) {
      names += (names.empty() ? "" : ", ") + next_->names[rank];
      all_here = all_here && core_.mesh_->on_this_host(core_.mesh_places_[next_->places[rank]]);
    }
    if (names.empty()) {
      return Error{ErrorCode::timeout, where_,
                   group + ": all members are ready, and the memory of one did not come"};
    }
    return Error{ErrorCode::timeout, where_,
                 group + " waits for " + names + ": not ready before the deadline" +
                     (members_ == Of::those_left && all_here
                          ? "; with a fence (Fence::kill, fence=\"kill\") shrink kills what is on "
                            "this host and does not come, and goes on"
                          : "") +
                     (where_ == "group.subgroup"
                          ? "; all members of it give the same ranks in the same order"
                          : "")};
  }

  bool takes_newcomers() const { return members_ == Of::those_here || members_ == Of::every_place; }

  // Ranks of those who have not said that they are ready for it.
  std::vector<std::uint32_t> missing() const TENDON_REQUIRES(core_.state_mutex_) {
    std::vector<std::uint32_t> ranks;
    for (std::uint32_t rank = 0; rank < next_->size(); ++rank)
      if (next_->ready[rank].number == 0) ranks.push_back(rank);
    return ranks;
  }

  // Somebody is ready for a later one of the same view, so it was complete: the words that are
  // missing here are on their way.
  bool is_over_for_others() const TENDON_REQUIRES(core_.state_mutex_) {
    const bool is_over = std::any_of(core_.ready_.begin(), core_.ready_.end(), [&](const auto& of) {
      return of.second.number > next_->number() && Epoch::view_of(of.second.number) == next_->view;
    });
    const auto is_beyond_or_lost = [&](std::uint32_t rank) TENDON_REQUIRES(core_.state_mutex_) {
      const std::uint32_t place = next_->places[rank];
      const auto said = core_.ready_.find(place);
      const bool is_beyond = said != core_.ready_.end() && said->second.number > next_->number();
      return is_beyond || core_.lost_.contains(place);
    };
    const auto ranks = missing();
    return is_over && std::none_of(ranks.begin(), ranks.end(), is_beyond_or_lost);
  }

  // What the members have agreed to enter; nothing as long as they have not.
  Result<std::optional<Aim>> agreed() {
    std::optional<Aim> aim;
    bool admitted = false;
    {
      const Lock lock(core_.state_mutex_);
      TENDON_CHECK(still_possible());
      admitted = takes_newcomers() && core_.admit_newcomers();
      const View& view = core_.agreement_.view();
      const bool open = (view.members & core_.agreement_.absent()).any() ||
                        core_.agreement_.leading() || view.members.none();
      const bool full = view.members.count() == core_.mesh_places_.size();
      // A newcomer may be told of a member before it has connected to it.
      bool reached = true;
      for (std::uint32_t place = 0; place < core_.mesh_places_.size(); ++place)
        if (view.members[place] && place != core_.self_)
          reached = reached && core_.channel_of(place) != nullptr;
      if (!open && reached && (full || members_ != Of::every_place)) {
        const Epoch& now = *core_.epoch_;
        aim = Aim{view, view.epoch == now.view ? now.attempt + 1 : 0};
        // Somebody came further in this view before it failed again.
        for (const auto& [place, ready] : core_.ready_) {
          if (Epoch::view_of(ready.number) == view.epoch)
            aim->attempt = std::max(aim->attempt, Epoch::attempt_of(ready.number));
        }
      }
    }
    if (admitted) core_.say_agreement();
    return aim;
  }

  Result<void> still_possible() const TENDON_REQUIRES(core_.state_mutex_) {
    if (members_ == Of::everybody) {
      for (const auto& [place, loss] : core_.lost_) {
        if (core_.left_early_.contains(place)) continue;
        return Error{ErrorCode::peer_lost, where_,
                     core_.mesh_->name_of(core_.mesh_places_[place]) +
                         " was lost before the group was complete: " + loss.error.detail};
      }
    }
    if (core_.agreement_.view().members.none() && core_.mesh_->came_too_late()) {
      return Error{ErrorCode::peer_lost, where_,
                   "the members of group \"" + core_.name_ +
                       "\" went before they called grow() or rebuild() for this process"};
    }
    if (core_.agreement_.state() != Agreement::State::evicted) return {};
    return Error{ErrorCode::peer_lost, where_,
                 "the others went on without this member of group \"" + core_.name_ + "\""};
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
      for (std::uint32_t rank = 0; rank < next_->size(); ++rank) {
        const auto said = core_.ready_.find(next_->places[rank]);
        if (said != core_.ready_.end() && said->second.number == next_->number())
          next_->ready[rank] = said->second;
      }
    }
    const bool here = std::all_of(next_->places.begin(), next_->places.end(), [&](auto place) {
      return core_.mesh_->on_this_host(core_.mesh_places_[place]);
    });
    if (!here) return {};
    TENDON_TRY(board, Board::create(core_.id_, next_->number(), next_->size(), next_->self,
                                    Tuning::get().staging));
    next_->board = std::move(board);
    return {};
  }

  // Shows the board, if there is one, and says that this member is ready; false: not now.
  Result<bool> show() {
    auto shown = core_.show_board(*next_);
    if (!shown && shown.error().code == ErrorCode::peer_lost) return false;
    if (!shown || !*shown) return shown;
    shown_ = true;
    Envelope word;
    {
      const Lock lane(core_.lane_mutex_);
      const Lock lock(core_.state_mutex_);
      const bool new_here = core_.epochs_entered_ == 0 && core_.mesh_->replacement();
      const Board* const board = next_->board.get();
      next_->ready[next_->self] = {
          next_->number(), board == nullptr ? 0 : core_.mesh_->name_segment(board->segment()),
          core_.issued_, new_here ? Ready::kNewHere : core_.last_complete_.load()};
      core_.ready_[core_.self_] = next_->ready[next_->self];
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
  bool shown_ = false;         // the board, and that this member is ready for it
  bool is_asked_for_ = false;  // by this call
  std::string killed_;         // names of members, for the error
};

// Not yet for who has come in the place of another: the members have to agree on it.
bool GroupCore::is_admitted() const {
  const Lock lock(state_mutex_);
  return agreement_.view().members.any();
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
  FenceClock<std::shared_ptr<Channel>> fences(deadline);
  Result<bool> looked = false;
  const auto attempt = [&] {
    looked = entering.look();
    if (fence == Fence::kill && looked && !*looked)
      entering.kill(fences.due(entering.awaited(), Deadline::Clock::now()));
    return engine()->unusable() || !looked || *looked;
  };
  // Somebody may come in the place of rank 0, whom all others have to look for: those who rebuild,
  // and who has come in a place himself, maybe to such members.
  const bool is_newcomer =
      members == Of::those_here && epochs_entered_ == 0 && mesh_->replacement();
  const auto wait = [&](Deadline until) {
    for (;;) {
      if (members != Of::every_place && !is_newcomer)
        return engine()->wait(nullptr, until, attempt);
      const Deadline now = earlier(until, Deadline(kLook));
      if (is_admitted())
        mesh_->seek_rank0(now);
      else
        mesh_->look_for_rank0(now);
      if (engine()->wait(nullptr, now, attempt)) return true;
      if (until.has_passed()) return false;
    }
  };
  bool done = wait(deadline);
  // The deadline has passed: this look kills.
  if (!done && fence == Fence::kill) done = attempt();
  if (!done && entering.has_killed())
    done = wait(Deadline::at(deadline.time_point() + kFenceGrace));
  TENDON_CHECK(engine()->usable(where));
  if (!looked) return std::move(looked).error();
  if (!done) return entering.timed_out();
  const bool is_asked_for = entering.is_asked_for();
  install(entering.take());
  return is_asked_for;
}

}  // namespace tendon::v0::detail
