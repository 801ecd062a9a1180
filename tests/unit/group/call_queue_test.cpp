// SPDX-License-Identifier: Apache-2.0
// The fate of the calls of a group, whatever kind the group is.
#include "group/epochs/call_queue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "support/expect.hpp"
#include "support/told_operation.hpp"

namespace tendon::detail {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

/// A group whose answers the test sets.
class Owner final : public CallQueueOwner, public std::enable_shared_from_this<Owner> {
 public:
  std::optional<Error> failure(std::string_view what) const override {
    if (end.runs()) return {};
    return Error{ErrorCode::group_aborted, "test", "too late for " + std::string(what)};
  }
  Error why_over() const override { return end.why().value(); }
  std::vector<GroupRank> lost_ranks(const Epoch&) const override { return gone; }
  std::optional<Error> lost(const Epoch&, GroupRank rank) const override {
    if (std::find(gone.begin(), gone.end(), rank) == gone.end()) return {};
    return Error{ErrorCode::peer_lost, "test", "rank " + std::to_string(rank.value) + " has gone"};
  }
  bool fail(const Epoch&, const Error& error, std::uint64_t first) override {
    return end.end(first, error);
  }
  void say_given(const Epoch&, std::string_view text) override { said.emplace_back(text); }
  std::optional<std::string> given_by(const Epoch&, GroupRank) const override { return heard; }
  void abort(std::string_view reason) override {
    end.end_unless_known(EpochEnd::kAll, {ErrorCode::cancelled, "test", std::string(reason)});
  }
  std::shared_ptr<void> share() override { return shared_from_this(); }

  Context context = Context::create({.progress = Progress::manual}).value();
  EpochEnd end;
  std::vector<GroupRank> gone;
  std::vector<std::string> said;
  std::optional<std::string> heard;
  CallQueue calls{*this, ContextCore::of(context), end, "g"};
};

class Calls : public testing::Test {
 protected:
  Calls() { begin(); }
  ~Calls() override {
    owner_->abort("the test is over");
    owner_->calls.close();
    owner_->context.progress();  // the Context drops its share of its owner
  }
  /// Begins an epoch of this member and another one, without a link.
  void begin(std::uint64_t issued = 0, std::uint64_t completed = 0) {
    epoch_ = std::make_shared<Epoch>();
    epoch_->view = ++view_;
    epoch_->places = {GroupPlace{0}, GroupPlace{1}};
    epoch_->names = {"rank 0", "rank 1"};
    epoch_->hosts = Hosts(std::vector<std::string>{"host", "another host"});
    epoch_->channels.resize(2);
    epoch_->ready = {{epoch_->number(), 0, 0, own_completed_},
                     {epoch_->number(), 0, issued, completed}};
    {
      const Lock inbox(epoch_->inbox_mutex);
      epoch_->inbox.resize(2);
    }
    owner_->end.begin();
    const Lock lock(calls().mutex());
    calls().begin(epoch_);
  }
  CallQueue& calls() { return owner_->calls; }
  CallQueue::Make make(std::shared_ptr<test::Told>& told, std::function<bool()> on_advance) {
    return [&told, on_advance = std::move(on_advance)](Epoch&, std::uint64_t sequence) {
      told = std::make_shared<test::Told>(sequence);
      told->awaited = {};
      told->on_advance = on_advance;
      return Result<std::shared_ptr<Operation>>(told);
    };
  }
  Completion<void> start(std::function<bool()> on_advance = [] { return false; }) {
    return calls().start(make(told_, std::move(on_advance)));
  }

  std::shared_ptr<Owner> owner_ = std::make_shared<Owner>();
  std::shared_ptr<Epoch> epoch_;
  std::shared_ptr<test::Told> told_;  // of the last call
  std::uint64_t view_ = 0;
  std::uint64_t own_completed_ = 0;
};

TEST_F(Calls, OnlyTheFirstOfTheQueueIsAdvanced) {
  bool first_may = false;
  int looks_at_second = 0;
  auto first = start([&] { return first_may; });
  auto second = start([&] { return ++looks_at_second > 0; });
  calls().advance();
  EXPECT_FALSE(first.done());
  EXPECT_EQ(looks_at_second, 0);
  first_may = true;
  calls().advance();
  EXPECT_TRUE(first.wait(0s));
  EXPECT_TRUE(second.wait(0s));
  EXPECT_EQ(looks_at_second, 1);
  EXPECT_EQ(calls().last_complete(), 2u);
}

TEST_F(Calls, NumbersGoOnWithTheHighestOfAnyMember) {
  (void)start([] { return true; });
  EXPECT_EQ(told_->sequence(), 1u);
  own_completed_ = 1;
  begin(7, 5);
  EXPECT_EQ(calls().complete_everywhere(), 1u);
  (void)start([] { return true; });
  EXPECT_EQ(told_->sequence(), 8u);
  // For another member, which has completed nothing itself.
  own_completed_ = Ready::kNewHere;
  begin(8, 6);
  EXPECT_EQ(calls().complete_everywhere(), 6u);
  EXPECT_EQ(calls().last_complete(), 6u);
}

TEST_F(Calls, TheReasonIsOfWhatItInterruptedAndTheRestIsOver) {
  auto first = start();
  auto second = start();
  EXPECT_TRUE(owner_->fail(*epoch_, {ErrorCode::mismatch, "test", "the reason"}, 1));
  auto third = start();
  EXPECT_TRUE(calls().progress());
  EXPECT_EQ(first.wait(0s).error().code, ErrorCode::mismatch);
  const auto behind_it = second.wait(0s);
  EXPECT_EQ(behind_it.error().code, ErrorCode::group_aborted);
  EXPECT_THAT(behind_it.error().detail, HasSubstr("the reason"));
  EXPECT_THAT(third.wait(0s).error().detail, HasSubstr("too late for a collective"));
}

// The other member's side of a mismatch

/// Calls whose first one finds that rank 1 passed other tensors.
class Differing : public Calls {
 protected:
  static CallQueue::Make one_that_differs() {
    return [](Epoch&, std::uint64_t sequence) {
      auto told = std::make_shared<test::Told>(sequence);
      told->awaited = {};
      told->set_given(given());
      told->on_advance = [told = told.get()]() -> Result<bool> {
        told->note_difference(GroupRank{1});
        return Error{ErrorCode::mismatch, "test", "they differ"};
      };
      return Result<std::shared_ptr<Operation>>(std::move(told));
    };
  }
  Completion<void> start_one_that_differs() { return calls().start(one_that_differs()); }
  static FlatSummary given() {
    FlatSummary given;
    given.add("weight", Tensor::zeros(DType::f32, Shape({3})).value());
    return given;
  }
};

TEST_F(Differing, WaitsForWhatTheOtherMemberSays) {
  auto failing = start_one_that_differs();
  EXPECT_FALSE(failing.done());
  EXPECT_THAT(owner_->said, ElementsAre("\"weight\" f32 [3]"));
  EXPECT_FALSE(calls().has_input()) << "nobody is to look again and again";
  owner_->heard = "f32 [4]";
  calls().note_given();
  EXPECT_TRUE(calls().has_input());
  EXPECT_TRUE(calls().progress());
  ASSERT_TRUE(failing.done());
  EXPECT_THAT(failing.wait(0s).error().detail,
              HasSubstr("they differ; rank 0 gave \"weight\" f32 [3]; rank 1 gave f32 [4]"));
}

TEST_F(Differing, ALostMemberSaysNothingMore) {
  auto failing = start_one_that_differs();
  EXPECT_FALSE(failing.done());
  owner_->gone = {GroupRank{1}};
  calls().advance();
  ASSERT_TRUE(failing.done());
  EXPECT_EQ(failing.wait(0s).error().code, ErrorCode::mismatch);
}

TEST_F(Differing, ItsOwnDeadlineEndsTheWait) {
  EXPECT_EQ(calls().run(one_that_differs(), 0s).error().code, ErrorCode::mismatch);
}

TEST_F(Differing, AMemberThatKeepsSilentIsWaitedForNoLongerThanItMay) {
  auto failing = start_one_that_differs();
  EXPECT_FALSE(failing.done());
  EXPECT_TRUE(test::eventually([&] {
    owner_->context.progress();
    return failing.done();
  }));
  EXPECT_EQ(failing.wait(0s).error().code, ErrorCode::mismatch);
}

TEST_F(Differing, ALeftGroupWaitsForNobody) {
  auto failing = start_one_that_differs();
  owner_->abort("the test leaves");
  calls().close();
  owner_->context.progress();
  EXPECT_EQ(failing.wait(0s).error().code, ErrorCode::mismatch);
}

// A root that is done with its part is asked as well.
TEST_F(Differing, WhatWasGivenToTheLastCompleteOneIsTold) {
  const auto make = [](Epoch&, std::uint64_t sequence) {
    auto told = std::make_shared<test::Told>(sequence);
    told->set_given(given());
    told->on_advance = [] { return true; };
    return Result<std::shared_ptr<Operation>>(std::move(told));
  };
  EXPECT_TRUE(calls().start(make).wait(0s));
  (void)owner_->end.end(1, {ErrorCode::mismatch, "test", "of another member"});
  calls().say_given_soon();
  EXPECT_TRUE(calls().progress());
  EXPECT_THAT(owner_->said, ElementsAre("\"weight\" f32 [3]"));
}

TEST_F(Calls, ALossIsSomethingToLookAtUntilItWasLookedAt) {
  auto waiting = start();
  owner_->gone = {GroupRank{1}};
  EXPECT_FALSE(calls().has_input());
  calls().note_loss();
  EXPECT_TRUE(calls().has_input());
  calls().advance();
  EXPECT_FALSE(calls().has_input());
  EXPECT_FALSE(waiting.done()) << "it does not wait for that one";
}

TEST_F(Calls, ATimeoutNamesTheCallBeforeIt) {
  auto first = start();
  std::shared_ptr<test::Told> second;
  const auto late = calls().run(make(second, [] { return false; }), 0s);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);
  EXPECT_THAT(late.error().detail, HasSubstr("waits for its own sends: barrier"));
  EXPECT_THAT(late.error().detail, HasSubstr("on group \"g\", called before it, is not done"));
  EXPECT_EQ(owner_->end.first(), EpochEnd::kAll);
  EXPECT_FALSE(first.wait(0s));
}

TEST_F(Calls, StepsAreDroppedOnceNothingThatHasBegunMayTakeThem) {
  const auto steps = [&] {
    const Lock lock(epoch_->inbox_mutex);
    std::vector<std::uint64_t> sequences;
    for (const InboundMessage& step : epoch_->inbox[{1}])
      sequences.push_back(step.envelope.sequence);
    return sequences;
  };
  {
    const Lock lock(epoch_->inbox_mutex);
    for (const std::uint64_t sequence : {1, 2}) {
      InboundMessage& step = epoch_->inbox[{1}].emplace_back();
      step.envelope = {.kind = EnvelopeKind::collective, .sequence = sequence};
    }
  }
  bool first_may = false;
  auto first = start([&] { return first_may; });
  EXPECT_TRUE(owner_->fail(*epoch_, {ErrorCode::mismatch, "test", "the reason"}, 2));
  calls().drop_dead_steps_soon();
  owner_->context.progress();
  EXPECT_THAT(steps(), ElementsAre(1, 2));
  first_may = true;
  calls().advance();
  EXPECT_THAT(steps(), ElementsAre(1));
}

TEST_F(Calls, TheFirstThatIsNotOver) {
  const auto first_open = [&] {
    const Lock lock(calls().mutex());
    return calls().first_open();
  };
  EXPECT_EQ(first_open(), 1u);
  bool first_may = false;
  (void)start([&] { return first_may; });
  (void)start();
  EXPECT_EQ(first_open(), 1u);
  first_may = true;
  calls().advance();
  EXPECT_EQ(first_open(), 2u);
}

TEST_F(Calls, TheFirstIsUnderWayForWhoeverLooks) {
  EXPECT_FALSE(calls().under_way());
  bool first_may = false;
  auto first = start([&] { return first_may; });
  told_->awaited = {GroupRank{1}};
  auto second = start();
  const auto found = calls().under_way();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->op, CollectiveOp::barrier);
  EXPECT_EQ(found->sequence, 1u);
  EXPECT_GT(found->elapsed, 0ns);
  EXPECT_THAT(found->awaited, ElementsAre(GroupRank{1}));
  first_may = true;
  calls().advance();
  EXPECT_EQ(calls().under_way()->sequence, 2u);
}

TEST_F(Calls, AThreadThatIsAtTheQueueIsNotWaitedFor) {
  const auto look = [&] {
    std::optional<CallQueue::UnderWay> found;
    std::thread([&] { found = calls().under_way(); }).join();
    return found;
  };
  std::optional<CallQueue::UnderWay> found;
  auto first = start([&] {
    found = look();
    return true;
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->op, CollectiveOp::barrier);
  EXPECT_EQ(found->sequence, 1u);
  EXPECT_THAT(found->awaited, IsEmpty());
  {
    const Lock lock(calls().mutex());
    EXPECT_FALSE(look()) << "it is over";
  }
}

// A thread that is at the queue has not seen that its epoch ended.
TEST_F(Calls, WhatIsClosedHasNothingLeft) {
  std::thread other;
  int looks = 0;
  auto call = start([&] {
    if (++looks != 2) return false;
    other = std::thread([&] {
      owner_->abort("it leaves");
      calls().close();
    });
    while (owner_->end.runs()) std::this_thread::yield();
    // Long enough for close() to begin.
    for (int i = 0; i < 10'000; ++i) std::this_thread::yield();
    return false;
  });
  calls().advance();
  other.join();
  ASSERT_TRUE(call.done());
  EXPECT_THAT(call.wait(0s).error().detail, HasSubstr("it leaves"));
  EXPECT_FALSE(calls().progress());
}

}  // namespace
}  // namespace tendon::detail
