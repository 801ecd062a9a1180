// SPDX-License-Identifier: Apache-2.0
#include "group/epochs/seats.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {

Seats::Seats(GroupPlace self, std::size_t count, const View& view, Minority minority,
             Agreement::Clock::duration retry, ChannelAt channel_at)
    : self_(self),
      channel_at_(std::move(channel_at)),
      agreement_(self, view, minority, retry),
      seats_(count),
      ready_(count) {
  follow_view();
}

void Seats::hear(GroupPlace from, const AgreementMessage& message) {
  const bool denies = message.kind == AgreementMessage::Kind::refuse && message.mask.any() &&
                      message.epoch == agreement_.view().epoch;
  agreement_.receive(from, message, Agreement::Clock::now());
  // It denies because an earlier process was the member. Checks if that one is proved dead.
  const Loss* const loss = loss_at(from);
  if (denies && loss != nullptr && loss->how == Absence::proved)
    agreement_.set_absent(from, Absence::proved, Agreement::Clock::now());
  follow_view();
}

void Seats::tick() {
  agreement_.tick(Agreement::Clock::now());
  follow_view();
}

bool Seats::admit_newcomers(const Epoch& now) {
  bool any = false;
  for (const GroupPlace place : seats_.numbers()) {
    if (place == self_ || agreement_.view().members[place.value] ||
        agreement_.admitted()[place.value])
      continue;
    const auto channel = channel_at_(place);
    if (channel == nullptr || channel->lost() || now.has(place, *channel)) continue;
    const Loss* const loss = loss_at(place);
    if (loss != nullptr && loss->channel == channel) continue;
    agreement_.admit(place, Agreement::Clock::now());
    any = true;
  }
  return any;
}

Seats::News Seats::note(GroupPlace place, const Loss& loss, const Epoch& now) {
  const auto& gone = loss.channel;
  const bool in_view = seats_[place] == gone;
  const auto current = channel_at_(place);
  if (!now.has(place, *gone) && !in_view && current != gone) return News::none;
  const Loss* const known = loss_at(place);
  const bool again = known != nullptr && known->channel == gone;
  if (again) {
    // A loss that is proved only now: a side that was too few to continue may be enough.
    if (!in_view || loss.how != Absence::proved || known->how == loss.how) return News::none;
    Loss proved = loss;
    proved.messages_dropped = known->messages_dropped;
    lost_.insert_or_assign(place, std::move(proved));
    return News::proof;
  }
  // The member at this place counts first, then the last arrival.
  const bool known_counts = !in_view && known != nullptr &&
                            (known->channel == seats_[place] || known->channel == current);
  if (!known_counts) lost_.insert_or_assign(place, loss);
  return News::loss;
}

void Seats::leave_out(GroupPlace place, const Loss& loss, const Epoch& now) {
  // A process that waits for another's place says nothing of that one when it leaves.
  const bool is_free = !agreement_.view().members[place.value];
  if (seats_[place] != loss.channel && !(is_free && channel_at_(place) == loss.channel)) return;
  if (loss.in_order() && ready_[place].number > now.number()) {
    left_early_.insert_or_assign(place, loss.channel);
    return;
  }
  agreement_.set_absent(place, loss.how, Agreement::Clock::now());
  miss_early();
}

void Seats::miss_early() {
  for (const auto& [place, channel] : std::exchange(left_early_, {}))
    if (seats_[place] == channel)
      agreement_.set_absent(place, Absence::proved, Agreement::Clock::now());
  follow_view();
}

// In a new view the agreement does not know which members are out of reach.
void Seats::follow_view() {
  while (followed_view_ != agreement_.view().epoch) {
    const View view = agreement_.view();
    const bool is_next = view.epoch == followed_view_ + 1;
    followed_view_ = view.epoch;
    for (const GroupPlace place : seats_.numbers()) {
      if (place == self_) continue;
      std::shared_ptr<MemberChannel>& seat = seats_[place];
      if (!view.members[place.value]) {
        seat = nullptr;
        ready_[place] = {};
        continue;
      }
      if (seat == nullptr || !is_next) seat = channel_at_(place);
      const Loss* const loss = loss_at(place);
      if (loss == nullptr || loss->channel != seat) continue;
      if (!left_early_.contains(place))
        agreement_.set_absent(place, loss->how, Agreement::Clock::now());
    }
  }
}

const Seats::Loss* Seats::loss_at(GroupPlace place) const {
  const auto found = lost_.find(place);
  return found == lost_.end() ? nullptr : &found->second;
}

std::optional<GroupPlace> Seats::first_missing() const {
  for (const auto& [place, loss] : lost_)
    if (!left_early_.contains(place)) return place;
  return {};
}

bool Seats::has_gone(GroupPlace place) const {
  const auto& seat = seats_[place];
  const Loss* const loss = loss_at(place);
  return seat == nullptr || seat->lost() || (loss != nullptr && loss->channel == seat);
}

std::vector<GroupPlace> Seats::take_replaced() {
  std::vector<GroupPlace> places;
  for (auto& [place, loss] : lost_)
    if (loss.channel != channel_at_(place) && !std::exchange(loss.messages_dropped, true))
      places.push_back(place);
  return places;
}

std::vector<Seats::Loss> Seats::forget_replaced() {
  std::vector<Loss> replaced;
  std::erase_if(lost_, [&](auto& lost) {
    if (lost.second.channel == channel_at_(lost.first)) return false;
    replaced.push_back(std::move(lost.second));
    return true;
  });
  return replaced;
}

std::vector<std::shared_ptr<const MemberChannel>> Seats::forget() {
  std::vector<std::shared_ptr<const MemberChannel>> channels;
  channels.reserve(seats_.size() + lost_.size() + left_early_.size());
  for (auto& seat : seats_) channels.push_back(std::move(seat));
  for (const auto& [place, loss] : std::exchange(lost_, {})) channels.push_back(loss.channel);
  for (const auto& [place, channel] : std::exchange(left_early_, {})) channels.push_back(channel);
  return channels;
}

bool Seats::hear_ready(GroupPlace place, const Ready& said) {
  if (said.number < ready_[place].number) return false;
  ready_[place] = said;
  return true;
}

std::uint32_t Seats::latest_attempt(std::uint64_t view) const {
  std::uint32_t latest = 0;
  for (const Ready& ready : ready_)
    if (Epoch::view_of(ready.number) == view)
      latest = std::max(latest, Epoch::attempt_of(ready.number));
  return latest;
}

bool Seats::is_over_for_others(const Epoch& next, const std::vector<GroupPlace>& places) const {
  const bool is_over = std::ranges::any_of(ready_, [&](const Ready& ready) {
    return ready.number > next.number() && Epoch::view_of(ready.number) == next.view;
  });
  return is_over && std::ranges::none_of(places, [&](GroupPlace place) {
           return is_beyond(next, place) || lost_.contains(place);
         });
}

bool Seats::may_run_already(const Epoch& next, const View& agreed) const {
  for (const GroupRank rank : next.ranks()) {
    const GroupPlace place = next.places[rank];
    const auto& channel = next.channels[rank];
    const Loss* const loss = loss_at(place);
    const bool is_replaced = seats_[place] != nullptr && seats_[place] != channel;
    const bool is_lost = loss != nullptr && loss->channel == channel;
    if (!agreed.members[place.value] || is_replaced || is_lost) return false;
    if (next.ready[rank].number == 0 && is_beyond(next, place)) return false;
  }
  return true;
}

}  // namespace tendon::v0::detail
