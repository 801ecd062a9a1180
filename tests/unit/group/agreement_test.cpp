// SPDX-License-Identifier: Apache-2.0
// The agreement on epochs, first in its steps, then against a network that loses, delays and
// reorders messages, splits, and lets members die in the middle.
#include "group/agreement.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace tendon::detail {
namespace {

using namespace std::chrono_literals;
using Clock = Agreement::Clock;
using State = Agreement::State;

constexpr auto kRetry = 10ms;

MemberMask mask_of(std::initializer_list<std::uint32_t> places) {
  MemberMask mask;
  for (const std::uint32_t place : places) mask.set(place);
  return mask;
}
MemberMask first(std::uint32_t count) {
  MemberMask mask;
  for (std::uint32_t place = 0; place < count; ++place) mask.set(place);
  return mask;
}

/// Members whose messages arrive at once and in order, as far as `reaches` lets them.
class Members {
 public:
  explicit Members(std::uint32_t count, Minority minority = Minority::refuse) {
    for (std::uint32_t place = 0; place < count; ++place)
      add(place, {.epoch = 1, .members = first(count)}, minority);
  }
  void add(std::uint32_t place, const View& view, Minority minority = Minority::refuse) {
    members_.emplace(place, Agreement(GroupRank{place}, view, minority, kRetry));
  }
  Agreement& operator[](std::uint32_t place) { return members_.at(place); }
  void settle() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& [place, member] : members_) {
        for (const auto& [to, message] : member.take_outgoing()) {
          if (!members_.contains(to.value) || silent.test(place) || silent.test(to.value)) continue;
          moved = true;
          ++messages;
          members_.at(to.value).receive({place}, message, now);
        }
      }
    }
  }
  void tick() {
    now += kRetry;
    for (auto& [place, member] : members_) member.tick(now);
    settle();
  }
  /// Everybody who is heard learns it.
  void die(std::uint32_t dead, Absence how = Absence::proved) {
    silent.set(dead);
    for (auto& [place, member] : members_)
      if (!silent.test(place)) member.set_absent({dead}, how, now);
    settle();
  }
  void expect_view(std::initializer_list<std::uint32_t> places, std::uint64_t epoch,
                   const MemberMask& members) {
    for (const std::uint32_t place : places) {
      EXPECT_EQ((*this)[place].view(), (View{epoch, members})) << "at " << place;
      EXPECT_EQ((*this)[place].state(), State::following) << "at " << place;
    }
  }

  MemberMask silent;
  Clock::time_point now{};
  std::size_t messages = 0;

 private:
  std::map<std::uint32_t, Agreement> members_;
};

TEST(Agreement, TheOthersGoOnWithoutTheDead) {
  Members members(4);
  members.die(2);
  members.expect_view({0, 1, 3}, 2, mask_of({0, 1, 3}));
  members.die(0);
  members.expect_view({1, 3}, 3, mask_of({1, 3}));
  members.die(3);
  members.expect_view({1}, 4, mask_of({1}));
}

TEST(Agreement, SaysNothingWhileNobodyIsMissing) {
  Members members(3);
  members.die(1);
  const std::size_t before = members.messages;
  for (int i = 0; i < 10; ++i) members.tick();
  EXPECT_EQ(members.messages, before);
}

TEST(Agreement, AMinorityWaitsAndAMajorityGoesOn) {
  Members members(5);
  members.silent = mask_of({0, 1});
  for (const std::uint32_t here : {2u, 3u, 4u})
    for (const std::uint32_t gone : {0u, 1u})
      members[here].set_absent({gone}, Absence::assumed, members.now);
  members.settle();
  members.expect_view({2, 3, 4}, 2, mask_of({2, 3, 4}));

  members.silent = mask_of({2, 3, 4});
  for (const std::uint32_t here : {0u, 1u})
    for (const std::uint32_t gone : {2u, 3u, 4u})
      members[here].set_absent({gone}, Absence::assumed, members.now);
  members.settle();
  EXPECT_EQ(members[0].state(), State::no_quorum);
  EXPECT_EQ(members[0].view().epoch, 1u);

  members.silent.reset();  // they meet again
  members.tick();
  EXPECT_EQ(members[0].state(), State::evicted);
  EXPECT_EQ(members[1].state(), State::evicted);
  members.expect_view({2, 3, 4}, 2, mask_of({2, 3, 4}));
}

TEST(Agreement, OfTwoHalvesTheOneWithTheLowestGoesOn) {
  Members members(2);
  members.silent.set(0);
  members[1].set_absent({0}, Absence::assumed, members.now);
  EXPECT_EQ(members[1].state(), State::no_quorum);
  members[1].set_absent({0}, Absence::proved, members.now);
  members.expect_view({1}, 2, mask_of({1}));

  Members others(2);
  others.silent.set(1);
  others[0].set_absent({1}, Absence::assumed, others.now);
  others.expect_view({0}, 2, mask_of({0}));
}

TEST(Agreement, AMinorityGoesOnWhereThatWasAllowed) {
  Members members(3, Minority::allow);
  members.silent = mask_of({0, 1});
  for (const std::uint32_t gone : {0u, 1u})
    members[2].set_absent({gone}, Absence::assumed, members.now);
  EXPECT_TRUE(members[2].view().members == mask_of({2}));
}

TEST(Agreement, WhoIsBackInTimeStays) {
  Members members(5);
  members.silent = mask_of({0, 1, 2});
  for (const std::uint32_t gone : {0u, 1u, 2u})
    members[3].set_absent({gone}, Absence::assumed, members.now);
  members.settle();
  EXPECT_EQ(members[3].state(), State::no_quorum);
  members.silent.reset();
  for (const std::uint32_t back : {0u, 1u, 2u}) members[3].set_present({back}, members.now);
  members.settle();
  members.expect_view({0, 1, 2, 3, 4}, 1, first(5));
}

TEST(Agreement, WhatADeadLeaderMayHaveDecidedIsDecidedAgain) {
  Members members(4);
  // 0 leads 3 out, and dies when only itself knows that all have accepted.
  members.silent.set(3);
  members[0].set_absent({3}, Absence::proved, members.now);
  for (const auto& [to, message] : members[0].take_outgoing())
    if (to.value != 3) members[to.value].receive({0}, message, members.now);
  for (const std::uint32_t from : {1u, 2u})
    for (const auto& [to, message] : members[from].take_outgoing())
      if (to.value == 0) members[0].receive({from}, message, members.now);
  ASSERT_EQ(members[0].view(), (View{2, mask_of({0, 1, 2})}));
  (void)members[0].take_outgoing();
  members.die(0);
  members.expect_view({1, 2}, 3, mask_of({1, 2}));
}

TEST(Agreement, TheEvictedStillTellWhatWasDecided) {
  Members members(3);
  // 0 leads 2 out, tells nobody but 2, and dies.
  members[0].set_absent({2}, Absence::assumed, members.now);
  for (const auto& [to, message] : members[0].take_outgoing())
    if (to.value == 1) members[1].receive({0}, message, members.now);
  for (const auto& [to, message] : members[1].take_outgoing())
    members[to.value].receive({1}, message, members.now);
  ASSERT_EQ(members[0].view(), (View{2, mask_of({0, 1})}));
  for (const auto& [to, message] : members[0].take_outgoing())
    if (to.value == 2) members[2].receive({0}, message, members.now);
  ASSERT_EQ(members[2].state(), State::evicted);
  members.die(0);
  members.expect_view({1}, 3, mask_of({1}));
}

TEST(Agreement, OfTwoThatCannotReachEachOtherTheLowerStays) {
  Members members(3);
  members[1].set_absent({2}, Absence::assumed, members.now);
  members[2].set_absent({1}, Absence::assumed, members.now);
  members.settle();
  members.expect_view({0, 1}, 2, mask_of({0, 1}));
  EXPECT_EQ(members[2].state(), State::evicted);
}

TEST(Agreement, ANewcomerIsAdmittedWhenItAnswers) {
  Members members(3);
  members.die(1);
  members.add(7, View());
  members[0].admit({7}, members.now);
  members.settle();
  members.expect_view({0, 2, 7}, 3, mask_of({0, 2, 7}));

  members[0].admit({8}, members.now);  // nobody is there
  members.settle();
  members.tick();
  members.expect_view({2, 7}, 3, mask_of({0, 2, 7}));
  members[0].set_absent({8}, Absence::assumed, members.now);
  members.settle();
  members.die(2);
  EXPECT_FALSE(members[0].view().members.test(2));
  EXPECT_EQ(members[0].view(), members[7].view());
}

AgreementMessage ballot_message(AgreementMessage::Kind kind, Ballot ballot, MemberMask mask = {}) {
  AgreementMessage message;
  message.kind = kind;
  message.epoch = 1;
  message.ballot = ballot;
  message.mask = mask;
  return message;
}

TEST(Agreement, APromiseIsKept) {
  using Kind = AgreementMessage::Kind;
  Agreement member({2}, {.epoch = 1, .members = first(4)}, Minority::refuse, kRetry);
  const auto answer_to = [&](std::uint32_t from, const AgreementMessage& message) {
    member.receive({from}, message, Clock::time_point());
    return member.take_outgoing().at(0).message;
  };
  EXPECT_EQ(answer_to(1, ballot_message(Kind::prepare, {3, 1})).kind, Kind::promise);
  for (const auto& early : {ballot_message(Kind::propose, {0, 0}, mask_of({0, 1, 2})),
                            ballot_message(Kind::prepare, {3, 0}),
                            ballot_message(Kind::propose, {2, 0}, mask_of({0, 1, 2}))}) {
    const AgreementMessage answer = answer_to(0, early);
    EXPECT_EQ(answer.kind, Kind::refuse);
    EXPECT_EQ(answer.ballot, (Ballot{3, 1}));
  }
  const MemberMask proposed = mask_of({1, 2, 3});
  EXPECT_EQ(answer_to(1, ballot_message(Kind::propose, {3, 1}, proposed)).kind, Kind::accept);
  const AgreementMessage later = answer_to(0, ballot_message(Kind::prepare, {4, 0}));
  EXPECT_EQ(later.kind, Kind::promise);
  EXPECT_EQ(later.accepted, (AgreementMessage::Accepted{{3, 1}, proposed}));
}

TEST(Agreement, ALeaderProposesTheLatestOfWhatWasAccepted) {
  using Kind = AgreementMessage::Kind;
  for (const bool later_comes_first : {false, true}) {
    Agreement leader({0}, {.epoch = 1, .members = first(5)}, Minority::refuse, kRetry);
    leader.receive({1}, ballot_message(Kind::prepare, {7, 1}), Clock::time_point());
    leader.set_absent({4}, Absence::assumed, Clock::time_point());
    const auto sent = leader.take_outgoing();
    const Ballot ballot = sent.back().message.ballot;
    ASSERT_EQ(ballot, (Ballot{8, 0}));
    AgreementMessage earlier = ballot_message(Kind::promise, ballot);
    earlier.accepted = {{6, 1}, mask_of({0, 1, 2})};
    AgreementMessage later = ballot_message(Kind::promise, ballot);
    later.accepted = {{7, 1}, mask_of({0, 1, 3})};
    leader.receive({1}, later_comes_first ? later : earlier, Clock::time_point());
    leader.receive({2}, later_comes_first ? earlier : later, Clock::time_point());
    leader.receive({3}, ballot_message(Kind::promise, ballot), Clock::time_point());
    const AgreementMessage proposal = leader.take_outgoing().back().message;
    EXPECT_EQ(proposal.kind, Kind::propose);
    EXPECT_EQ(proposal.mask, mask_of({0, 1, 3}));
  }
}

TEST(Agreement, IgnoresWhatNoMemberWouldSay) {
  Members members(3);
  Agreement& target = members[1];
  AgreementMessage forged;
  forged.kind = AgreementMessage::Kind::propose;
  forged.epoch = 1;
  forged.mask = mask_of({2});
  forged.ballot = {0, 2};  // the first round is the lowest place's
  target.receive({2}, forged, members.now);
  ASSERT_EQ(target.take_outgoing().at(0).message.kind, AgreementMessage::Kind::refuse);
  forged.ballot = {5, 0};  // another's ballot
  target.receive({2}, forged, members.now);
  ASSERT_EQ(target.take_outgoing().at(0).message.kind, AgreementMessage::Kind::refuse);
  forged.ballot = {5, 200};
  target.receive({200}, forged, members.now);  // of no member
  EXPECT_TRUE(target.take_outgoing().empty());
  forged.kind = AgreementMessage::Kind::accept;
  target.receive({2}, forged, members.now);
  target.receive({kMaxPlaces}, forged, members.now);
  EXPECT_EQ(target.view(), (View{1, first(3)}));
  forged.kind = AgreementMessage::Kind::prepare;
  forged.ballot = {~std::uint64_t{0}, 2};  // there is no round after it
  target.receive({2}, forged, members.now);
  members.die(2);
  members.expect_view({0, 1}, 2, mask_of({0, 1}));
}

// The simulation

/// One run: everything random comes from the seed.
class Simulation {
 public:
  Simulation(std::uint64_t seed, bool dead_are_proved) : random_(seed), proved_(dead_are_proved) {
    count_ = static_cast<std::uint32_t>(2 + below(6));
    for (std::uint32_t place = 0; place < count_; ++place)
      nodes_.emplace_back(std::make_unique<Agreement>(
          GroupRank{place}, View{.epoch = 1, .members = first(count_)}, Minority::refuse, kRetry));
    side_.assign(count_, 0);
  }

  void run() {
    for (int step = 0; step < 400; ++step) {
      disturb();
      advance();
      if (testing::Test::HasFatalFailure()) return;
    }
    // Peace: nothing is lost, everybody reaches everybody who lives and knows who does not.
    loss_percent_ = 0;
    side_.assign(count_, 0);
    for (int step = 0; step < 600; ++step) advance();
    check_that_it_ended();
  }

 private:
  struct Node {
    explicit Node(std::unique_ptr<Agreement> made) : agreement(std::move(made)) {}
    std::unique_ptr<Agreement> agreement;
    bool alive = true;
    Clock::time_point died{};
    MemberMask believed_absent;
    MemberMask believed_dead;
  };
  struct Flight {
    Clock::time_point at;
    std::uint32_t from;
    std::uint32_t to;
    AgreementMessage message;
  };
  struct Decision {
    std::uint32_t by;
    MemberMask members;
    Clock::time_point at;
  };

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  bool reaches(std::uint32_t a, std::uint32_t b) const {
    return nodes_[a].alive && nodes_[b].alive && side_[a] == side_[b];
  }

  void disturb() {
    if (below(40) == 0) {
      Node& node = nodes_[below(count_)];
      node.died = node.alive ? now_ : node.died;
      node.alive = false;
    }
    if (below(25) == 0)
      for (auto& side : side_) side = below(3) == 0 ? 1 : 0;
    if (below(20) == 0) side_.assign(count_, 0);
    if (below(15) == 0) loss_percent_ = below(2) == 0 ? 0 : below(60);
  }

  void advance() {
    now_ += std::chrono::milliseconds(1 + below(4));
    // Each member finds out, each in its own time.
    for (std::uint32_t place = 0; place < count_; ++place) {
      if (!nodes_[place].alive || below(4) != 0) continue;
      detect(place, static_cast<std::uint32_t>(below(count_)));
      nodes_[place].agreement->tick(now_);
      collect(place);
    }
    std::vector<Flight> due;
    std::erase_if(flights_, [&](const Flight& flight) {
      if (flight.at > now_) return false;
      due.push_back(flight);
      return true;
    });
    std::shuffle(due.begin(), due.end(), random_);
    for (const Flight& flight : due) {
      if (!reaches(flight.from, flight.to)) continue;
      nodes_[flight.to].agreement->receive({flight.from}, flight.message, now_);
      collect(flight.to);
    }
  }

  void detect(std::uint32_t place, std::uint32_t other) {
    if (place == other) return;
    Node& node = nodes_[place];
    if (!nodes_[other].alive && proved_ && !node.believed_dead.test(other)) {
      node.believed_dead.set(other);
      node.agreement->set_absent({other}, Absence::proved, now_);
    } else if (!reaches(place, other)) {
      node.agreement->set_absent({other}, Absence::assumed, now_);
      node.believed_absent.set(other);
    } else if (node.believed_absent.test(other)) {
      node.agreement->set_present({other}, now_);
      node.believed_absent.reset(other);
    }
  }

  void collect(std::uint32_t place) {
    const View& view = nodes_[place].agreement->view();
    for (auto& [to, message] : nodes_[place].agreement->take_outgoing()) {
      if (to.value >= count_ || below(100) < loss_percent_) continue;
      flights_.push_back({now_ + std::chrono::milliseconds(below(30)), place, to.value, message});
      if (below(20) == 0) flights_.push_back(flights_.back());  // twice
    }
    for (const Decision& other : decisions_[view.epoch]) {
      if (other.members == view.members) continue;
      // All that the other side had are dead, and proved so: nobody lives by what it decided.
      const bool harmless = proved_ && !nodes_[other.by].alive && nodes_[other.by].died <= now_;
      ASSERT_TRUE(harmless) << "epoch " << view.epoch << " is " << other.members << " at "
                            << other.by << " and " << view.members << " at " << place;
    }
    decisions_[view.epoch].push_back({place, view.members, now_});
    const bool evicted = nodes_[place].agreement->state() == State::evicted;
    ASSERT_EQ(evicted, !view.members.test(place));
  }

  void check_that_it_ended() {
    const View* latest = nullptr;
    for (const Node& node : nodes_) {
      const View& view = node.agreement->view();
      if (node.alive && view.members.test(place_of(node)) &&
          (latest == nullptr || view.epoch > latest->epoch))
        latest = &view;
    }
    if (latest == nullptr) return;  // nobody is left
    MemberMask alive;
    for (std::uint32_t place = 0; place < count_; ++place)
      if (nodes_[place].alive && latest->members.test(place)) alive.set(place);
    const bool all_here = alive == latest->members;
    const bool may_go_on = 2 * alive.count() > latest->members.count() || proved_;
    for (std::uint32_t place = 0; place < count_; ++place) {
      if (!alive.test(place)) continue;
      const Agreement& member = *nodes_[place].agreement;
      EXPECT_EQ(member.view(), *latest) << "at " << place;
      if (all_here) {
        EXPECT_EQ(member.state(), State::following) << "at " << place;
      }
    }
    EXPECT_TRUE(all_here || !may_go_on)
        << "the dead are still members of epoch " << latest->epoch << text();
  }
  [[nodiscard]] std::string text() const {
    std::ostringstream all;
    for (const Node& node : nodes_) {
      const Agreement& member = *node.agreement;
      all << "\n"
          << place_of(node) << (node.alive ? " lives" : " is dead") << " in epoch "
          << member.view().epoch << " of " << member.view().members.to_ulong() << ", without "
          << member.absent().to_ulong() << ", state " << static_cast<int>(member.state());
    }
    return all.str();
  }
  [[nodiscard]] std::uint32_t place_of(const Node& node) const {
    return static_cast<std::uint32_t>(&node - nodes_.data());
  }

  std::mt19937_64 random_;
  const bool proved_;
  std::uint32_t count_ = 0;
  std::vector<Node> nodes_;
  std::vector<int> side_;
  std::uint64_t loss_percent_ = 0;
  Clock::time_point now_{};
  std::vector<Flight> flights_;
  std::map<std::uint64_t, std::vector<Decision>> decisions_;
};

TEST(AgreementSimulation, NoTwoEpochsOfOneNumberAndAnEndInPeace) {
  const std::uint64_t seed = std::random_device()();
  for (std::uint64_t round = 0; round < 600; ++round) {
    SCOPED_TRACE(testing::Message() << "seed " << seed + round);
    Simulation(seed + round, round % 2 == 0).run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tendon::detail
