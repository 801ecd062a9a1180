// SPDX-License-Identifier: Apache-2.0
#include "group/epochs/group_core.hpp"

#include <algorithm>

#include "core/peer_error.hpp"
#include "core/text.hpp"
#include "group/membership/agreement_wire.hpp"

namespace tendon::v0::detail {
namespace {

constexpr auto kRetry = std::chrono::milliseconds(50);
// The most that a member may leave unread of words of the agreement, and of other posted words.
constexpr std::size_t kMostUnreadBytes = 65536;
// Between two tries to join at a rendezvous whose group is about to end.
constexpr auto kFirstPause = std::chrono::milliseconds(5);
constexpr auto kLongestPause = std::chrono::milliseconds(200);

View first_view(std::size_t members) {
  View view{1, {}};
  for (std::size_t place = 0; place < members; ++place) view.members.set(place);
  return view;
}

}  // namespace

GroupCore::GroupCore(std::shared_ptr<Mesh> mesh, std::uint64_t id, std::string name,
                     ByPlace<MeshPlace> mesh_places, const View& view, Minority minority)
    : mesh_(std::move(mesh)),
      id_(id),
      name_(std::move(name)),
      mesh_places_(std::move(mesh_places)),
      self_(*mesh_places_.find(mesh_->self())),
      calls_(*this, mesh_->context(), end_, name_),
      seats_(self_, mesh_places_.size(), view, minority, kRetry,
             [this](GroupPlace place) { return channel_of(place); }),
      early_(self_) {}

Result<std::shared_ptr<GroupCore>> GroupCore::join(std::shared_ptr<ContextCore> context,
                                                   const Rendezvous& rendezvous,
                                                   const GroupOptions& options, Deadline deadline) {
  for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    TENDON_TRY(mesh, Mesh::create(context, rendezvous, options));
    auto core = join(mesh, options, deadline);
    if (core || deadline.has_passed() || !mesh->came_too_late()) return core;
    // The earlier group has ended, or nearly: the next one of these members begins when they have
    // left it.
    mesh.reset();
    context->wait(nullptr, earlier(deadline, pause), [&] { return context->unusable(); });
    if (deadline.has_passed()) return core;
  }
}

Result<std::shared_ptr<GroupCore>> GroupCore::join(const std::shared_ptr<Mesh>& mesh,
                                                   const GroupOptions& options, Deadline deadline) {
  if (auto met = mesh->meet(deadline); !met) {
    mesh->end();
    return std::move(met).error();
  }
  ByPlace<MeshPlace> places(mesh->size());
  for (const GroupPlace place : places.numbers()) places[place] = {place.value};
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

Result<std::shared_ptr<GroupCore>> GroupCore::subgroup(std::span<const GroupRank> ranks,
                                                       Deadline deadline, std::string_view name) {
  TENDON_CHECK(check_process("group.subgroup"));
  const auto now = epoch();
  ByPlace<MeshPlace> places;
  for (const GroupRank rank : ranks) {
    if (rank.value >= now->size() || std::count(ranks.begin(), ranks.end(), rank) != 1) {
      return Error{ErrorCode::invalid_argument, "group.subgroup",
                   "rank " + std::to_string(rank.value) +
                       (rank.value >= now->size()
                            ? " in a list of ranks of a group of " + std::to_string(now->size())
                            : " is twice in the list of ranks")};
    }
    places.push_back(mesh_places_[now->places[rank]]);
  }
  if (!places.find(mesh_->self())) {
    return Error{
        ErrorCode::invalid_argument, "group.subgroup",
        "this member, rank " + std::to_string(now->self.value) +
            ", is not in the list of ranks; only those in it call subgroup(), split() is for all"};
  }
  // All members compute the same number from the same list, without a message.
  std::uint64_t id = id_;
  const auto mix = [&](std::uint64_t word) {
    id = (id ^ word) * 0x9e3779b97f4a7c15ull;
    id ^= id >> 29;
  };
  for (const MeshPlace place : places) mix(place.value + 1);
  // The epoch is part of it: a newcomer in another's place does not know earlier groups.
  mix(now->number());
  {
    const Lock lock(state_mutex_);
    mix(++subgroups_made_[places]);
  }
  const View view = first_view(places.size());
  auto core = std::make_shared<GroupCore>(
      mesh_, id,
      name.empty() ? name_ + "/" + std::to_string(ranks.front().value) : std::string(name),
      std::move(places), view, Minority::refuse);
  core->parent_ = weak_from_this();
  mesh_->add(id, core);
  auto entered = core->enter(deadline, Of::everybody, Fence::none, "group.subgroup");
  if (!entered) {
    core->leave();
    return std::move(entered).error();
  }
  return core;
}

void GroupCore::leave() {
  if (context()->forked() || left_.exchange(true)) return;
  if (!context()->unusable()) {
    std::optional<AbortWord> word;
    {
      const Lock lock(state_mutex_);
      word = end_.take_word();
    }
    // Members that the word has not reached would take this one for the one that ended the epoch.
    if (word) say_all(word->envelope, as_bytes(word->text));
    take_back_held();
    say_all({.kind = EnvelopeKind::left, .from = self_});
  }
  bool is_last = false;
  {
    // Other members say later that they have left.
    const Lock lock(state_mutex_);
    MemberMask staying;
    for (const GroupPlace place : mesh_places_.numbers()) {
      if (!seats_.has_gone(place)) staying.set(mesh_places_[place].value);
    }
    is_last = mesh_->remove(id_, staying);
  }
  messages_.close();
  std::shared_ptr<Epoch> last;
  std::shared_ptr<Epoch> next;
  {
    const Lock calls(calls_.mutex());
    const Lock lock(state_mutex_);
    next = std::move(next_);
    end_.end_unless_known(EpochEnd::kAll,
                          {ErrorCode::group_aborted, "group", "this member has left the group"});
    last = epoch_;
  }
  calls_.close();
  for (const auto& epoch : {last, next})
    if (epoch != nullptr && epoch->board != nullptr) mesh_->forget_segment(epoch->board->segment());
  forget_members();
  // Completions have shares of this group and its mesh, for as long as the caller keeps them.
  if (is_last) mesh_->end();
}

// Releases their links and boards as soon as no call needs them, even while this group is shared.
void GroupCore::forget_members() {
  // Released after the locks: the end of a link takes others.
  std::shared_ptr<Epoch> last;
  std::vector<std::shared_ptr<const MemberChannel>> channels;
  const Lock lock(state_mutex_);
  last = std::exchange(epoch_, std::make_shared<Epoch>());
  channels = seats_.forget();
}

// A message that waits until the receiver takes earlier ones may wait for ever. Then the channels
// to the members that this one has left would never end, and nobody could take its place.
void GroupCore::take_back_held() {
  for (const GroupPlace place : mesh_places_.numbers()) {
    const auto channel = place == self_ ? nullptr : channel_of(place);
    if (channel == nullptr || channel->lost()) continue;
    const std::string name = mesh_->name_of(mesh_places_[place]);
    const Error why{ErrorCode::group_aborted, "group.send",
                    "this member has left group \"" + name_ + "\" while " + name +
                        " had not taken what was sent to it before; nothing of this was delivered"};
    if (const std::size_t count = channel->take_back_held(id_, why); count != 0) {
      context()->log(LogLevel::warn, why.where, std::to_string(count) + " messages: " + why.detail);
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
             EpochEnd::kAll);
  context()->wake_others();
}

std::shared_ptr<Epoch> GroupCore::epoch() const {
  if (context()->forked()) return std::make_shared<Epoch>();
  const Lock lock(state_mutex_);
  return epoch_;
}

std::optional<GroupPlace> GroupCore::place_of(MeshPlace mesh_place) const {
  return mesh_places_.find(mesh_place);
}

// For the call queue

std::optional<Error> GroupCore::failure(std::string_view what) const {
  if (auto usable = context()->usable("group." + std::string(what)); !usable)
    return std::move(usable).error();
  if (end_.runs()) return {};
  const Lock lock(state_mutex_);
  if (end_.runs()) return {};
  // A caller that arrives only now gets the member's name, as the callers that waited did.
  const auto& why = end_.why();
  const bool is_loss = why && why->code == ErrorCode::peer_lost;
  return Error{is_loss ? ErrorCode::peer_lost : ErrorCode::group_aborted, "group",
               std::string(what) + " on group \"" + name_ +
                   "\": its epoch is over, shrink() makes the next one; " +
                   (why ? why->detail : std::string("it was never complete"))};
}

Error GroupCore::why_over() const {
  const Lock lock(state_mutex_);
  return end_.why().value_or(Error{ErrorCode::group_aborted, "group", "never complete"});
}

std::optional<Error> GroupCore::lost(const Epoch& epoch, GroupRank rank) const {
  const Lock lock(state_mutex_);
  const auto* const loss = seats_.loss_at(epoch.places[rank]);
  if (loss == nullptr) return {};
  return error_of_gone(epoch, rank, loss->error);
}

std::optional<Error> GroupCore::gone(const Epoch& epoch, GroupRank rank) const {
  auto error = lost(epoch, rank);
  if (error && !all_arrived_from(epoch, rank)) error.reset();
  return error;
}

std::vector<GroupRank> GroupCore::lost_ranks(const Epoch& epoch) const {
  std::vector<GroupRank> ranks;
  const Lock lock(state_mutex_);
  for (const GroupRank rank : epoch.ranks())
    if (seats_.loss_at(epoch.places[rank]) != nullptr) ranks.push_back(rank);
  return ranks;
}

// Failure

bool GroupCore::fail(const Epoch& epoch, const Error& error, std::uint64_t first) {
  return fail(epoch, error, first, self_);
}

bool GroupCore::fail(const Epoch& epoch, const Error& error, std::uint64_t first,
                     GroupPlace blamed) {
  {
    const Lock lock(state_mutex_);
    if (&epoch != epoch_.get() || !end_.end(first, error)) return false;
    end_.note_told(first);
  }
  calls_.drop_dead_steps_soon();
  say_all({.kind = EnvelopeKind::abort,
           .from = self_,
           .epoch = epoch.number(),
           .sequence = first,
           .extra = blamed.value,
           .tag = static_cast<std::uint32_t>(error.code)},
          as_bytes(error.detail));
  return true;
}

void GroupCore::say_given(const Epoch& epoch, std::string_view given) {
  {
    const Lock lock(state_mutex_);
    if (&epoch != epoch_.get() || end_.runs() || !given_.say_once()) return;
  }
  say_all({.kind = EnvelopeKind::abort,
           .op = GivenWords::kWord,
           .from = self_,
           .epoch = epoch.number(),
           .sequence = end_.first(),
           .extra = self_.value,
           .tag = static_cast<std::uint32_t>(ErrorCode::mismatch)},
          as_bytes(given));
}

std::optional<std::string> GroupCore::given_by(const Epoch& epoch, GroupRank rank) const {
  const Lock lock(state_mutex_);
  if (&epoch != epoch_.get()) return std::nullopt;
  return given_.find(epoch.places[rank]);
}

void GroupCore::say_all(Envelope envelope, Bytes body) {
  envelope.group = id_;
  if (envelope.epoch == 0) envelope.epoch = epoch()->number();
  for (const GroupPlace place : mesh_places_.numbers())
    if (place != self_) say(place, envelope, body);
}

// Does nothing if the member cannot be reached.
void GroupCore::say(GroupPlace place, const Envelope& envelope, Bytes body) const {
  const auto channel = channel_of(place);
  if (channel != nullptr && !channel->lost()) channel->post(envelope, body);
}

void GroupCore::say_agreement() {
  std::vector<Agreement::Outgoing> outgoing;
  bool tick = false;
  {
    const Lock lock(state_mutex_);
    outgoing = seats_.take_outgoing();
    if (seats_.agreement().unsettled() && !ticking_) tick = ticking_ = true;
  }
  for (const auto& [to, message] : outgoing) {
    // A word of another member makes this one speak to a third, which may not read. The agreement
    // repeats lost words.
    const auto channel = channel_of(to);
    if (channel == nullptr || channel->lost()) continue;
    if (channel->link().posted_bytes() > kMostUnreadBytes) continue;
    channel->post({.kind = EnvelopeKind::agreement, .from = self_, .group = id_}, encode(message));
  }
  if (tick) (void)context()->add_timed(Deadline(kRetry), weak_from_this());
}

void GroupCore::on_time() {
  if (left_ || context()->unusable()) return;
  {
    const Lock lock(state_mutex_);
    ticking_ = false;
    seats_.tick();
  }
  say_agreement();
}

void GroupCore::on_lost(MeshPlace mesh_place, const MemberChannel& channel, const Error& error,
                        Absence how) {
  const auto place = place_of(mesh_place);
  if (!place) return;
  const Seats::Loss loss{error, channel.shared_from_this(), how};
  Seats::News news;
  bool member = false;
  std::string name;
  std::shared_ptr<Epoch> now;
  // This Context ends: the others hear from their links that this member leaves.
  const bool ending = context()->unusable();
  {
    const Lock lock(state_mutex_);
    calls_.note_loss();  // a thread that has seen it waits for this lock
    now = epoch_;
    news = seats_.note(*place, loss, *now);
    if (news == Seats::News::none || ending) return;
    seats_.leave_out(*place, loss, *now);
    member = now->has(*place, channel);
    name = member ? now->names[*now->rank_at(*place)] : mesh_->name_of(mesh_place);
  }
  say_agreement();
  // A member that left in order may have done all its part: only operations that wait for it fail.
  if (loss.in_order() || !member || news != Seats::News::loss) return;
  Error lost = error;
  lost.code = ErrorCode::peer_lost;
  lost.where = "group";
  lost.detail = name + " was lost: " + error.detail;
  (void)fail(*now, lost, EpochEnd::kAll, *place);
}

// "rank 1, rank 3": ranks of the first epoch.
std::string GroupCore::empty_places() const {
  std::string text;
  for (const GroupPlace place : mesh_places_.numbers()) {
    const bool absent = seats_.agreement().absent()[place.value];
    if (seats_.agreement().view().members[place.value] && !absent) continue;
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(mesh_places_[place].value);
  }
  return text;
}

// Words of members

void GroupCore::on_inbound(MeshPlace mesh_place, InboundMessage&& inbound) {
  const auto place = place_of(mesh_place);
  if (!place) return;
  switch (inbound.envelope.kind) {
    case EnvelopeKind::ready:
      return on_ready(*place, inbound.envelope);
    case EnvelopeKind::abort:
      return on_abort(*place, inbound);
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
        seats_.hear(*place, *message);
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

void GroupCore::on_ready(GroupPlace place, const Envelope& envelope) {
  std::optional<Envelope> again;
  {
    const Lock lock(state_mutex_);
    const Ready said{envelope.epoch, envelope.extra, envelope.sequence, envelope.count};
    if (!seats_.hear_ready(place, said)) return;
    // A member that is ready for a later epoch has been in the one that is entered here.
    if (next_ != nullptr && said.number == next_->number()) {
      if (const auto rank = next_->rank_at(place)) next_->ready[*rank] = said;
    }
    // It missed the word of this member's entry.
    if (end_.runs() && envelope.epoch == epoch_->number()) {
      again = ready_word();
    }
  }
  if (again) say(place, *again);
}

// A part of this member's Ready.
Envelope GroupCore::ready_word() {
  const Ready& ready = seats_.ready(self_);
  return {.kind = EnvelopeKind::ready,
          .from = self_,
          .group = id_,
          .epoch = ready.number,
          .sequence = ready.issued,
          .count = ready.completed,
          .extra = ready.board};
}

void GroupCore::on_given(GroupPlace place, const InboundMessage& inbound) {
  {
    const Lock lock(state_mutex_);
    if (inbound.envelope.epoch != epoch_->number() || !epoch_->rank_at(place)) return;
    given_.hear(place, inbound.text());
  }
  calls_.note_given();
}

void GroupCore::on_abort(GroupPlace place, const InboundMessage& inbound) {
  const bool is_mismatch = inbound.envelope.tag == static_cast<std::uint32_t>(ErrorCode::mismatch);
  if (is_mismatch && inbound.envelope.op == GivenWords::kWord) return on_given(place, inbound);
  AbortWord word{inbound.envelope, cleaned(inbound.text())};
  const std::uint64_t first = inbound.envelope.sequence;
  std::optional<AbortWord> answer;
  {
    Lock lock(state_mutex_);
    const std::uint64_t now = epoch_->number();
    if (inbound.envelope.epoch > now) {
      if (early_.keep(std::move(word))) return;
      lock.unlock();
      if (const auto channel = inbound.channel.lock())
        channel->violation("aborts of epochs that nobody can be in");
      return;
    }
    // There is no epoch to end before the first one, whatever a peer says.
    if (inbound.envelope.epoch != now || left_ || epochs_entered_ == 0) return;
    Error why = error_of(word, *epoch_);
    if (end_.end(first, std::move(why), std::move(word))) calls_.drop_dead_steps_soon();
    end_.note_told(first);
    // It ended earlier here, which nobody had to know before.
    if (end_.must_tell()) answer = end_.tell(self_, now);
  }
  if (is_mismatch) calls_.say_given_soon();
  if (answer) say_all(answer->envelope, as_bytes(answer->text));
}

Error GroupCore::error_of(const AbortWord& word, const Epoch& epoch) {
  const auto code = code_from_peer(word.envelope.tag, PeerSays::epoch);
  Error error{code.value_or(ErrorCode::group_aborted), "group.abort", word.text};
  // A loss reads the same on all members; any other text is that member's own.
  const auto rank = epoch.rank_at(word.envelope.from.in_group());
  if (error.code != ErrorCode::peer_lost && error.code != ErrorCode::mismatch && rank)
    error.detail = epoch.names[*rank] + " ended it: " + error.detail;
  return error;
}

void GroupCore::on_step(GroupPlace place, InboundMessage&& inbound) {
  std::shared_ptr<Epoch> now;
  {
    Lock lock(state_mutex_);
    now = epoch_;
    if (inbound.envelope.epoch > now->number()) {
      const auto channel = inbound.channel.lock();
      if (early_.keep(place, std::move(inbound))) return;
      lock.unlock();
      if (channel != nullptr) channel->violation("steps of epochs that nobody can be in");
      return;
    }
  }
  if (inbound.envelope.epoch != now->number()) return;  // of an epoch that has ended
  const auto rank = now->rank_at(place);
  if (!rank) return;
  const std::uint32_t sequence = operation_number(inbound.envelope);
  // No operation will take it, and the words that end the epoch may be behind it.
  if (end_.ends_before(sequence)) return inbound.held.give_back();
  {
    const Lock lock(now->inbox_mutex);
    now->inbox[*rank].push_back(std::move(inbound));
  }
  if (end_.ends_before(sequence)) calls_.drop_dead_steps_soon();
}

// Work

// Pool memory

PoolPlace GroupCore::pool_place(const Epoch& epoch, const Flat& tensors) {
  if (tensors.runs().size() != 1) return {};
  const Flat::Run& run = tensors.runs().front();
  auto location = context()->memory().host->locate({run.data, run.size_bytes});
  if (!location) return {};
  // Memory that this member cannot read would stall the others: it shows nothing, so all use
  // another way.
  for (const auto& channel : epoch.channels)
    if (channel != nullptr && channel->published().any_failed()) return {};
  for (const GroupPlace place : epoch.places) {
    if (place == self_) continue;
    const auto shown = mesh_->publish(mesh_places_[place], location->segment);
    if (!shown || !*shown) return {};
  }
  return {mesh_->name_segment(location->segment), location->offset};
}

PoolReader GroupCore::pool_reader(std::shared_ptr<Epoch> epoch) {
  return [epoch = std::move(epoch)](
             std::uint32_t member, PoolPlace place,
             std::uint64_t size_bytes) -> Result<std::shared_ptr<const std::byte>> {
    const PublishedSegments& published = epoch->channels[GroupRank{member}]->published();
    TENDON_TRY(segment, published.look(place.segment_id));
    if (segment == nullptr || place.offset > segment->size_bytes() ||
        size_bytes > segment->size_bytes() - place.offset)
      return std::shared_ptr<const std::byte>();
    const std::byte* const at = segment->data() + place.offset;
    return std::shared_ptr<const std::byte>(std::move(segment), at);
  };
}

}  // namespace tendon::v0::detail
