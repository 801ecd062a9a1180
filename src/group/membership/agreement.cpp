// SPDX-License-Identifier: Apache-2.0
#include "group/membership/agreement.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {
namespace {

/// A higher round always exists. Members trust each other; this limit only stops nonsense.
constexpr std::uint64_t kMaxRound = std::uint64_t{1} << 62;

/// Precondition: the mask is not empty.
GroupPlace lowest(const MemberMask& mask) {
  GroupPlace place;
  while (!mask.test(place.value)) ++place.value;
  return place;
}

MemberMask only(GroupPlace member) {
  MemberMask mask;
  mask.set(member.value);
  return mask;
}

}  // namespace

Agreement::Agreement(GroupPlace self, const View& view, Minority minority, Clock::duration retry)
    : self_(self),
      minority_(minority),
      retry_(retry),
      view_(view),
      absences_(self, view.members),
      proposer_(self) {}

std::vector<Agreement::Outgoing> Agreement::take_outgoing() { return std::exchange(outgoing_, {}); }

void Agreement::send(GroupPlace to, AgreementMessage message) {
  message.epoch = view_.epoch;
  outgoing_.push_back({to, message});
}

void Agreement::send_all(MemberMask to, const AgreementMessage& message) {
  to.reset(self_.value);
  for (std::uint32_t place = 0; place < kMaxPlaces; ++place)
    if (to.test(place)) send(GroupPlace{place}, message);
}

void Agreement::send_report() {
  send_all(view_.members & ~absences_.proved(), message_of_report());
}

AgreementMessage Agreement::message_of_report() const {
  AgreementMessage message;
  message.kind = Kind::absent;
  message.mask = absences_.mine().absent;
  message.proved = absences_.mine().proved;
  return message;
}

AgreementMessage Agreement::message_of_view() const {
  AgreementMessage message;
  message.kind = Kind::decided;
  message.mask = view_.members;
  return message;
}

AgreementMessage Agreement::message_of_ballot() const {
  AgreementMessage message;
  message.kind = state_ == State::preparing ? Kind::prepare : Kind::propose;
  message.ballot = proposer_.ballot();
  if (state_ == State::proposing) {
    message.mask = proposer_.proposal();
    message.admitted = proposer_.proposal() & ~view_.members;
  }
  return message;
}

// The members of the next epoch

void Agreement::set_absent(GroupPlace member, Absence how, Clock::time_point now) {
  admitted_.reset(member.value);
  if (absences_.miss(member, how)) send_report();
  consider(now);
}

void Agreement::admit(GroupPlace place, Clock::time_point now) {
  if (view_.members.test(place.value)) return;
  admitted_.set(place.value);
  consider(now);
}

bool Agreement::has_quorum(const MemberMask& side) const {
  const std::size_t all = view_.members.count();
  const std::size_t here = side.count();
  if (2 * here > all) return true;
  if (2 * here == all && side.test(lowest(view_.members).value)) return true;
  if ((view_.members & ~side & ~absences_.proved()).none()) return true;
  return minority_ == Minority::allow;
}

MemberMask Agreement::awaited(Newcomers newcomers) const {
  if (leading()) return proposer_.unanswered() & ~only(self_);
  const MemberMask here = present();
  const bool wanted = here != view_.members ||
                      (newcomers == Newcomers::wanted && (admitted_ & ~view_.members).any());
  const bool is_led = state_ == State::following && wanted && here.test(self_.value);
  return is_led ? only(lowest(here)) & ~only(self_) : MemberMask();
}

// Leading an epoch

void Agreement::consider(Clock::time_point now) {
  if (state_ == State::evicted || view_.members.none()) return;
  const MemberMask here = present();
  // An accepted proposal must be decided, even when nobody is missed or admitted any more.
  const bool wanted =
      here != view_.members || (admitted_ & ~view_.members).any() || accepted_.has_value();
  if (!wanted || !here.test(self_.value) || (has_quorum(here) && lowest(here) != self_)) {
    state_ = State::following;
  } else if (!has_quorum(here)) {
    state_ = State::no_quorum;
  } else {
    // Or a newcomer whose answer is awaited has left.
    const MemberMask& asked = proposer_.asked();
    const bool in_vain = (asked & ~view_.members & ~admitted_).any();
    if (!leading() || (asked & view_.members) != here || in_vain) lead(now);
  }
}

void Agreement::lead(Clock::time_point now) {
  promised_ = proposer_.begin(lowest(view_.members), accepted_);
  if (promised_.round == 0) return propose(now);
  state_ = State::preparing;
  said_at_ = now;
  proposer_.ask(present());
  send_all(proposer_.asked(), message_of_ballot());
  count_answer(self_, now);
}

void Agreement::propose(Clock::time_point now) {
  state_ = State::proposing;
  said_at_ = now;
  const MemberMask& proposal = proposer_.propose(present() | admitted_);
  accepted_ = {proposer_.ballot(), proposal};
  // A newcomer answers too, so that no absent process becomes a member.
  proposer_.ask(present() | (proposal & admitted_));
  send_all(proposer_.asked(), message_of_ballot());
  count_answer(self_, now);
}

void Agreement::count_answer(GroupPlace from, Clock::time_point now) {
  proposer_.answer(from);
  if (proposer_.unanswered().any()) return;
  if (state_ == State::preparing) return propose(now);
  const View next{view_.epoch + 1, proposer_.proposal()};
  const MemberMask audience = (view_.members | next.members) & ~absences_.proved();
  adopt(next);
  send_all(audience & ~unconfirmed_, message_of_view());
  begin_epoch(now);
}

void Agreement::adopt(const View& next) {
  // Another process may have taken a place in an epoch that this member missed.
  const MemberMask stay =
      next.epoch == view_.epoch + 1 ? view_.members & next.members : MemberMask();
  unconfirmed_ = next.members & ~stay;
  unconfirmed_.reset(self_.value);
  view_ = next;
  state_ = next.members.test(self_.value) ? State::following : State::evicted;
  absences_.begin(next.members, stay);
  admitted_ &= ~next.members;
  promised_ = Ballot();
  accepted_.reset();
  proposer_ = Proposer(self_);
}

void Agreement::begin_epoch(Clock::time_point now) {
  if (present() != view_.members) send_report();
  send_all(unconfirmed_, message_of_view());
  consider(now);
}

// Receiving

void Agreement::receive(GroupPlace from, const AgreementMessage& message, Clock::time_point now) {
  if (from == self_ || from.value >= kMaxPlaces) return;
  if (state_ == State::evicted) {
    // This member may be the only live one that the leader told.
    if (message.epoch < view_.epoch) send(from, message_of_view());
    return;
  }
  if (view_.members.none()) return receive_as_newcomer(from, message, now);
  if (message.epoch == view_.epoch) {
    const MemberMask heard = view_.members | admitted_;
    if (heard.test(from.value)) receive_here(from, message, now);
  } else if (message.epoch < view_.epoch) {
    send(from, message_of_view());
  } else if (message.kind == Kind::decided) {
    adopt({message.epoch, message.mask});
    begin_epoch(now);
  } else {
    AgreementMessage behind;  // an empty report of an old epoch, answered with the new one
    behind.kind = Kind::absent;
    send(from, behind);
  }
}

void Agreement::receive_as_newcomer(GroupPlace from, const AgreementMessage& message,
                                    Clock::time_point now) {
  if (message.epoch < view_.epoch || message.epoch == 0) return;
  const bool is_in = message.mask.test(self_.value);
  AgreementMessage answer;
  if (message.kind == Kind::propose && message.admitted.test(self_.value)) {
    if (message.epoch < denied_ || (message.epoch == view_.epoch && message.ballot < promised_))
      return;
    view_.epoch = message.epoch;
    promised_ = message.ballot;
    answer.kind = Kind::accept;
    answer.ballot = message.ballot;
    return send(from, answer);
  }
  const bool is_decided = message.kind == Kind::decided;
  const bool has_accepted = view_.epoch != 0 && message.epoch > view_.epoch;
  if (has_accepted && is_decided && is_in) {
    adopt({message.epoch, message.mask});
    return begin_epoch(now);
  }
  if (has_accepted && !is_decided) return;  // a member of that epoch says so
  const bool is_for_members = message.kind == Kind::absent || message.kind == Kind::prepare;
  const bool is_of_us = is_in && (is_decided || message.kind == Kind::propose);
  if (!is_for_members && !is_of_us) return;
  // The member of this place was an earlier process, unknown to this one.
  denied_ = std::max(denied_, message.epoch);
  answer.kind = Kind::refuse;
  answer.mask = only(self_);
  answer.epoch = message.epoch;
  outgoing_.push_back({from, answer});
}

void Agreement::receive_here(GroupPlace from, const AgreementMessage& message,
                             Clock::time_point now) {
  if (message.ballot.round > kMaxRound) return;
  proposer_.heed(message.ballot);
  unconfirmed_.reset(from.value);
  AgreementMessage answer;
  answer.ballot = message.ballot;
  switch (message.kind) {
    case Kind::absent:
      absences_.hear(from, {message.mask, message.proved});
      return consider(now);
    case Kind::prepare:
    case Kind::propose: {
      const bool first = message.ballot.round == 0;
      const bool may = message.ballot.place == from && message.ballot >= promised_ &&
                       (!first || (message.kind == Kind::propose && from == lowest(view_.members)));
      if (!may) {
        answer.kind = Kind::refuse;
        answer.ballot = promised_;
        return send(from, answer);
      }
      promised_ = message.ballot;
      if (leading()) state_ = State::following;
      if (message.kind == Kind::prepare) {
        answer.kind = Kind::promise;
        answer.accepted = accepted_;
      } else {
        answer.kind = Kind::accept;
        accepted_ = {message.ballot, message.mask};
      }
      return send(from, answer);
    }
    case Kind::promise:
      if (state_ != State::preparing || message.ballot != proposer_.ballot()) return;
      proposer_.hear(message.accepted);
      return count_answer(from, now);
    case Kind::accept:
      if (state_ == State::proposing && message.ballot == proposer_.ballot())
        count_answer(from, now);
      return;
    case Kind::refuse:
      // The owner decides what that is worth: it knows whose link was there before.
      if (message.mask == only(from)) return set_absent(from, Absence::assumed, now);
      return proposer_.refused(message.ballot);  // tick() tries again, with a higher one
    case Kind::decided:                          // asks if this is the process that was admitted
      return send(from, message_of_report());
  }
}

void Agreement::tick(Clock::time_point now) {
  if (!unsettled() || now - said_at_ < retry_) return;
  said_at_ = now;
  // A member that decided without being heard answers a report of the old epoch.
  if (present() != view_.members || accepted_) send_report();
  send_all(unconfirmed_ & present(), message_of_view());
  consider(now);
  if (leading()) {
    if (proposer_.outvoted()) return lead(now);
    send_all(proposer_.unanswered(), message_of_ballot());
  }
}

}  // namespace tendon::v0::detail
