// SPDX-License-Identifier: Apache-2.0
// A member that enters an epoch; the test plays the other members.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "group/epochs/group_core.hpp"
#include "group/membership/agreement_wire.hpp"
#include "support/group_cores.hpp"
#include "support/told_operation.hpp"

namespace tendon::detail {
namespace {

using test::Told;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;

class Heard final : public MeshListener {
 public:
  void on_inbound(MeshPlace, InboundMessage&& inbound) override {
    envelopes.push_back(inbound.envelope);
  }
  void on_lost(MeshPlace, const MemberChannel&, const Error&, Absence) override {}
  std::vector<Envelope> envelopes;
};

/// Calls a function once, on the thread that makes progress.
class Once final : public Work {
 public:
  explicit Once(std::function<void()> call) : call_(std::move(call)) {}
  bool progress() override {
    call_();
    return false;
  }
  [[nodiscard]] bool has_input() const noexcept override { return true; }

 private:
  std::function<void()> call_;
};

/// A member of a further group; the test plays all its other members. With newcomers this group
/// stands for the first group: a further group admits no newcomer.
class Entering : public testing::Test {
 protected:
  static constexpr std::uint64_t kFirst = std::uint64_t{1} << Epoch::kAttemptBits;  // the epoch

  /// The last `newcomers` of them have taken the places of others, and are not members yet.
  explicit Entering(std::uint32_t count = 2, std::uint32_t newcomers = 0)
      : newcomers_(newcomers), members_(count) {}
  void SetUp() override {
    members_.join();
    if (HasFatalFailure()) return;
    const auto& mesh = members_.cores[0]->mesh();
    if (newcomers_ != 0) group_ = mesh->first_group();
    ByPlace<MeshPlace> places;
    View view{1, {}};
    for (std::uint32_t place = 0; place < members_.cores.size(); ++place) {
      places.push_back({place});
      if (place + newcomers_ < members_.cores.size()) view.members.set(place);
      if (place != 0) members_.cores[place]->mesh()->add(group_, heard_);
    }
    member_ = std::make_shared<GroupCore>(mesh, group_, "tested", std::move(places), view,
                                          Minority::refuse);
    mesh->add(group_, member_);
  }
  void TearDown() override {
    if (member_ != nullptr) member_->leave();
  }
  /// The message arrives when the member looks for messages: after its first look at the state.
  void say(Envelope envelope, std::uint32_t from = 1, Bytes body = {}) {
    envelope.from = GroupPlace{from};
    envelope.group = group_;
    members_.cores[from]->mesh()->channel({0})->post(envelope, body);
  }
  void say_ready(std::uint64_t epoch, std::uint32_t from = 1) {
    say({.kind = EnvelopeKind::ready, .epoch = epoch}, from);
  }
  bool hears_ready(std::uint64_t epoch, std::size_t times) {
    return members_.progress_until([&] {
      const auto is_it = [&](const Envelope& each) {
        return each.kind == EnvelopeKind::ready && each.epoch == epoch;
      };
      return static_cast<std::size_t>(
                 std::count_if(heard_->envelopes.begin(), heard_->envelopes.end(), is_it)) == times;
    });
  }
  bool hears_abort(std::uint64_t epoch) {
    return members_.progress_until([&] {
      return std::ranges::any_of(heard_->envelopes, [&](const Envelope& each) {
        return each.kind == EnvelopeKind::abort && each.epoch == epoch &&
               each.sequence == EpochEnd::kAll;
      });
    });
  }
  void enter(std::uint64_t number, GroupCore::Of members = GroupCore::Of::those_left) {
    const auto entered = member_->enter(kSoon, members, Fence::none, "test");
    ASSERT_TRUE(entered) << entered.error().message();
    EXPECT_EQ(member_->epoch()->number(), number);
    EXPECT_EQ(member_->epoch()->size(), members_.cores.size());
  }

  const std::uint32_t newcomers_;
  std::uint64_t group_ = 4711;
  test::GroupCores members_;
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  std::shared_ptr<GroupCore> member_;
};

class EnteringOfThree : public Entering {
 protected:
  EnteringOfThree() : Entering(3) {}
};

/// Two members, one of them the tested one, which was ready for their first epoch when a newcomer
/// arrived. They agree to admit it before the other's word arrives.
class EnteringWithANewcomer : public Entering, public testing::WithParamInterface<GroupCore::Of> {
 protected:
  static constexpr std::uint64_t kGrown = 2 * kFirst;

  EnteringWithANewcomer() : Entering(3, 1) {}
  void SetUp() override {
    Entering::SetUp();
    if (HasFatalFailure()) return;
    const auto late = member_->enter(1ms, GroupCore::Of::those_left, Fence::none, "test");
    ASSERT_FALSE(late);
    ASSERT_THAT(late.error().detail, HasSubstr("waits for rank 1"));
  }
  /// The other member speaks after this member has seen their agreement.
  void agree_and_then(std::function<void()> speak) {
    const auto later = [this](std::function<void()> call) {
      member_->context()->add_work(std::make_shared<Once>(std::move(call)));
    };
    later([this, later, speak = std::move(speak)] {
      for (const std::uint32_t rank : {1u, 2u}) {
        AgreementMessage accept;
        accept.kind = AgreementMessage::Kind::accept;
        accept.epoch = 1;
        say({.kind = EnvelopeKind::agreement}, rank, encode(accept));
      }
      later([later, speak] { later(speak); });
    });
  }
};

// The other member learned that this member is ready before it learned about the agreement, and
// works by now.
TEST_P(EnteringWithANewcomer, WhoMayHaveEnteredWithThisMemberIsFollowed) {
  agree_and_then([&] {
    say_ready(kFirst);
    if (GetParam() == GroupCore::Of::every_place)  // incomplete: the next is entered, too
      for (const std::uint32_t rank : {1u, 2u}) say_ready(kGrown, rank);
  });
  if (GetParam() != GroupCore::Of::every_place) {
    const auto entered = member_->enter(kSoon, GetParam(), Fence::none, "test");
    ASSERT_TRUE(entered) << entered.error().message();
    EXPECT_EQ(member_->epoch()->number(), kFirst);
    EXPECT_EQ(member_->epoch()->size(), 2u);
    for (const std::uint32_t rank : {1u, 2u}) say_ready(kGrown, rank);
  }
  enter(kGrown, GetParam());
  EXPECT_EQ(member_->epochs_entered(), 2u);
}

TEST_P(EnteringWithANewcomer, WhoWillNotEnterWithThisMemberIsNotWaitedFor) {
  agree_and_then([&] {
    for (const std::uint32_t rank : {1u, 2u}) say_ready(kGrown, rank);
  });
  enter(kGrown, GetParam());
  EXPECT_EQ(member_->epochs_entered(), 1u);
}

INSTANTIATE_TEST_SUITE_P(By, EnteringWithANewcomer,
                         testing::Values(GroupCore::Of::those_here, GroupCore::Of::every_place),
                         [](const auto& tested) {
                           return std::string(
                               tested.param == GroupCore::Of::those_here ? "grow" : "rebuild");
                         });

TEST_F(Entering, WhoMissedThatThisMemberIsReadyIsToldAgain) {
  say_ready(kFirst);
  enter(kFirst);
  EXPECT_EQ(member_->epoch()->board, nullptr) << "the other has none";
  EXPECT_TRUE(hears_ready(kFirst, 1));
  say_ready(kFirst);
  EXPECT_TRUE(hears_ready(kFirst, 2));
}

// A member whose board is missing cannot take part.
TEST_F(Entering, WhoseBoardCannotBeMappedIsLostWithTheReason) {
  constexpr std::uint32_t kBoard = 77;
  const auto other = members_.cores[0]->mesh()->channel({1});
  other->on_segment_failed(kBoard, Error{ErrorCode::resource_exhausted, "test", "no room", ENOMEM});
  EXPECT_FALSE(other->lost()) << "it may be a pool's, of which there is another way";
  say({.kind = EnvelopeKind::ready, .epoch = kFirst, .extra = kBoard});
  ASSERT_TRUE(member_->enter(kSoon, GroupCore::Of::those_left, Fence::none, "test"));
  EXPECT_EQ(member_->epoch()->size(), 1u);
  ASSERT_TRUE(other->loss());
  EXPECT_EQ(other->loss()->code, ErrorCode::resource_exhausted);
  EXPECT_NE(other->loss()->detail.find("no room"), std::string::npos);
}

TEST_F(Entering, AWordOfAnOlderEpochIsNoneAndReplacesNone) {
  say_ready(kFirst);
  enter(kFirst);
  const auto late = member_->enter(20ms, GroupCore::Of::those_left, Fence::none, "test");
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);
  EXPECT_THAT(late.error().detail, HasSubstr("waits for rank 1"));
  say_ready(kFirst + 1);
  say_ready(kFirst);
  enter(kFirst + 1);
}

TEST_F(Entering, AnAbortBeforeTheFirstEpochEndsNothingAndHasNoAnswer) {
  say({.kind = EnvelopeKind::abort, .epoch = 0, .sequence = 5, .extra = 1});
  say_ready(kFirst);
  enter(kFirst);
  EXPECT_FALSE(member_->failure("barrier"));
  EXPECT_TRUE(hears_ready(kFirst, 1));
  EXPECT_TRUE(std::none_of(heard_->envelopes.begin(), heard_->envelopes.end(),
                           [](const Envelope& each) { return each.kind == EnvelopeKind::abort; }));
}

TEST_F(Entering, WhoIsBehindTakesTheAttemptOfWhoIsAhead) {
  say_ready(kFirst + 5);
  enter(kFirst + 5);
  EXPECT_TRUE(hears_ready(kFirst + 5, 1));
}

TEST_F(Entering, WhoWasReadyAndLeftIsInItAndNotInTheNext) {
  say_ready(kFirst);
  say({.kind = EnvelopeKind::left});
  enter(kFirst, GroupCore::Of::everybody);
  EXPECT_FALSE(member_->failure("barrier")) << "of operations that do not need it";
  EXPECT_TRUE(member_->lost(*member_->epoch(), {1}));
  const auto entered = member_->enter(kSoon, GroupCore::Of::those_left, Fence::none, "test");
  ASSERT_TRUE(entered) << entered.error().message();
  EXPECT_EQ(member_->epoch()->size(), 1u);
}

// The others have been in the epoch that this member is entering, and it failed. Operations that
// completed in it may be this member's too.
TEST_F(EnteringOfThree, WhoIsLateEntersAnEpochThatIsOverForTheOthers) {
  member_->context()->add_work(std::make_shared<Once>([&] {
    for (const std::uint32_t rank : {1, 2}) say_ready(kFirst, rank);
    say({.kind = EnvelopeKind::abort, .epoch = kFirst, .sequence = 2, .extra = 1}, 1);
    for (const std::uint32_t rank : {1, 2})
      say({.kind = EnvelopeKind::ready, .epoch = kFirst + 1, .sequence = 1, .count = 1}, rank);
  }));
  enter(kFirst, GroupCore::Of::everybody);
  const auto operation = [&] {
    auto completion = member_->calls().start([&](Epoch&, std::uint64_t sequence) {
      auto told = std::make_shared<Told>(sequence);
      told->on_advance = [] { return true; };
      return Result<std::shared_ptr<Operation>>(std::move(told));
    });
    return completion.wait(0s);
  };
  EXPECT_TRUE(operation()) << "the first";
  EXPECT_FALSE(operation()) << "the one that failed";
  enter(kFirst + 1);
  EXPECT_EQ(member_->calls().complete_everywhere(), 1u);
  EXPECT_TRUE(operation());
}

// Words of different members arrive in any order.
TEST_F(EnteringOfThree, WhoseWordIsLateIsWaitedForWhenAnotherIsBeyondIt) {
  member_->context()->add_work(std::make_shared<Once>([&] {
    say_ready(kFirst, 1);
    say_ready(kFirst + 1, 1);
    member_->context()->add_work(std::make_shared<Once>([&] {
      member_->context()->add_work(std::make_shared<Once>([&] { say_ready(kFirst, 2); }));
    }));
  }));
  enter(kFirst, GroupCore::Of::everybody);
}

// The others may have lost a member that this one has not: they agreed on a group of less than
// three.
TEST_F(EnteringOfThree, IsWholeOrAnErrorAlsoWhereOthersHaveAgreedOnLess) {
  member_->context()->add_work(std::make_shared<Once>([&] {
    AgreementMessage decided;
    decided.kind = AgreementMessage::Kind::decided;
    decided.epoch = 2;
    decided.mask.set(0);
    decided.mask.set(1);
    say({.kind = EnvelopeKind::agreement}, 1, encode(decided));
    say_ready(2 * kFirst, 1);
  }));
  const auto entered = member_->enter(kSoon, GroupCore::Of::everybody, Fence::none, "test");
  ASSERT_FALSE(entered) << "of " << member_->epoch()->size();
  EXPECT_EQ(entered.error().code, ErrorCode::peer_lost);
  EXPECT_THAT(entered.error().detail, HasSubstr("have lost rank 2"));
}

// The member that the others still wait for has said that it is ready, or nobody would have left.
TEST_F(EnteringOfThree, WhoLeftBeforeAllWordsHaveComeIsInItToo) {
  say_ready(kFirst, 1);
  say({.kind = EnvelopeKind::left}, 1);
  member_->context()->add_work(std::make_shared<Once>([&] { say_ready(kFirst, 2); }));
  enter(kFirst, GroupCore::Of::everybody);
  EXPECT_FALSE(member_->failure("barrier"));
}

TEST_F(Entering, WhoWasReadyAndDiedEndsTheEpochThatBegins) {
  say_ready(kFirst);
  say({.kind = static_cast<EnvelopeKind>(99)});  // ends its channel
  enter(kFirst, GroupCore::Of::everybody);
  const auto failure = member_->failure("barrier");
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code, ErrorCode::peer_lost);
  EXPECT_THAT(failure->detail, HasSubstr("rank 1"));
}

// The others may have lost no member, and would wait.
TEST_F(EnteringOfThree, WhoFindsSomebodyDeadWhenTheEpochBeginsTellsTheOthers) {
  say_ready(kFirst, 1);
  say_ready(kFirst, 2);
  say({.kind = static_cast<EnvelopeKind>(99)}, 1);  // ends its channel
  enter(kFirst, GroupCore::Of::everybody);
  ASSERT_TRUE(member_->failure("barrier"));
  EXPECT_TRUE(hears_abort(kFirst));
}

// The third member has told only the other one that it is ready, and the other one has entered by
// now.
TEST_F(EnteringOfThree, AMemberThatGivesUpWhatItWasReadyForTellsTheOthers) {
  const auto late = member_->enter(1ms, GroupCore::Of::those_left, Fence::none, "test");
  ASSERT_FALSE(late);
  ASSERT_TRUE(hears_ready(kFirst, 2)) << "both others";
  say_ready(kFirst, 1);
  say({.kind = static_cast<EnvelopeKind>(99)}, 2);  // ends its channel
  AgreementMessage accept;
  accept.kind = AgreementMessage::Kind::accept;
  accept.epoch = 1;
  member_->context()->add_work(std::make_shared<Once>([&] {
    say({.kind = EnvelopeKind::agreement}, 1, encode(accept));
    say_ready(2 * kFirst, 1);
  }));
  ASSERT_TRUE(member_->enter(kSoon, GroupCore::Of::those_left, Fence::none, "test"));
  EXPECT_EQ(member_->epoch()->size(), 2u);
  EXPECT_TRUE(hears_abort(kFirst));
}

// A member that arrived while this one had stopped waiting has entered with the board that this one
// showed.
TEST_F(Entering, WhoTriesAgainGoesOnWithTheSameBoard) {
  say_ready(kFirst);
  enter(kFirst);
  for (int i = 0; i < 3; ++i) {
    const auto late = member_->enter(1ms, GroupCore::Of::those_left, Fence::none, "test");
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, ErrorCode::timeout);
  }
  say_ready(kFirst + 1);
  enter(kFirst + 1);
  EXPECT_TRUE(hears_ready(kFirst + 1, 1)) << "one word, of one board";
}

TEST_F(Entering, NothingIsCalledBetweenTwoEpochs) {
  say_ready(kFirst);
  enter(kFirst);
  std::optional<Completion<void>> completion;
  member_->context()->add_work(std::make_shared<Once>([&] {
    completion = member_->calls().start([](Epoch&, std::uint64_t sequence) {
      return Result<std::shared_ptr<Operation>>(std::make_shared<Told>(sequence));
    });
    say_ready(kFirst + 1);
  }));
  enter(kFirst + 1, GroupCore::Of::those_here);
  ASSERT_TRUE(completion);
  ASSERT_TRUE(completion->done());
  EXPECT_EQ(completion->wait(0s).error().code, ErrorCode::group_aborted);
}

}  // namespace
}  // namespace tendon::detail
