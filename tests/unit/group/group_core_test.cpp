// SPDX-License-Identifier: Apache-2.0
// A member and its messages, in an order that the test chooses: no thread makes progress by itself.
#include "group/epochs/group_core.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "group/epochs/collectives.hpp"
#include "group/membership/agreement_wire.hpp"
#include "support/group_cores.hpp"
#include "support/told_operation.hpp"

namespace tendon::detail {
namespace {

using test::Told;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;

/// Two members; this thread is the first.
class TwoMembers : public testing::Test {
 protected:
  void SetUp() override {
    members_.join();
    if (!HasFatalFailure()) epoch_ = core().epoch();
  }

  GroupCore& core() { return *members_.cores[0]; }
  MemberChannel& channel() { return *epoch_->channels[{1}]; }

  /// An operation in the call queue.
  struct Started {
    std::shared_ptr<Told> operation;
    Completion<void> completion;
  };
  Started start(const std::function<void(Told&)>& prepare = [](Told&) {}) {
    std::shared_ptr<Told> told;
    auto completion = core().calls().start([&](Epoch&, std::uint64_t sequence) {
      told = std::make_shared<Told>(sequence);
      prepare(*told);
      return Result<std::shared_ptr<Operation>>(told);
    });
    return {std::move(told), std::move(completion)};
  }

  void hear(Envelope envelope, std::string_view text = {}) {
    envelope.from = GroupPlace{1};
    envelope.group = core().id();
    IncomingBody body;
    if (!text.empty()) {
      std::shared_ptr<std::byte[]> copy(new std::byte[text.size()]);
      std::memcpy(copy.get(), text.data(), text.size());
      body = {.place = IncomingBody::Place::private_copy, .owner = copy, .data = copy.get()};
    }
    core().on_inbound({1}, {envelope, std::move(body), text.size(), channel().weak_from_this()});
  }
  void hear_abort(std::uint64_t epoch, ErrorCode code, std::string_view text,
                  std::uint64_t first = 0) {
    hear({.kind = EnvelopeKind::abort,
          .epoch = epoch,
          .sequence = first,
          .extra = 1,
          .tag = static_cast<std::uint32_t>(code)},
         text);
  }
  void other_leaves() {
    core().on_lost({1}, channel(), Error{ErrorCode::end_of_stream, "test", "it has left"},
                   Absence::proved);
  }
  /// Both enter the next epoch.
  void enter_both(GroupCore::Of members = GroupCore::Of::those_left) {
    std::thread other([&] {
      const auto entered = members_.cores[1]->enter(kSoon, members, Fence::none, "test");
      EXPECT_TRUE(entered) << entered.error().message();
    });
    const auto entered = core().enter(kSoon, members, Fence::none, "test");
    EXPECT_TRUE(entered) << entered.error().message();
    other.join();
    EXPECT_NE(core().epoch()->number(), epoch_->number());
    EXPECT_EQ(core().epoch()->number(), members_.cores[1]->epoch()->number());
    epoch_ = core().epoch();
  }

  test::GroupCores members_{2};
  std::shared_ptr<Epoch> epoch_;
};

// Texts from a peer

TEST_F(TwoMembers, WhatAPeerGaveEndsNothingAndIsCleanedAndCut) {
  const auto given = [&](std::uint64_t epoch, std::string_view text) {
    hear({.kind = EnvelopeKind::abort,
          .op = GivenWords::kWord,
          .epoch = epoch,
          .sequence = 1,
          .tag = static_cast<std::uint32_t>(ErrorCode::mismatch)},
         text);
  };
  given(epoch_->number() + 1, "of an epoch that is not here");
  given(epoch_->number() - 1, "of one that is over");
  EXPECT_FALSE(core().given_by(*epoch_, GroupRank{1}));
  given(epoch_->number(), "f32 [3]\x1b[2J\n" + std::string(4000, 'x'));
  EXPECT_FALSE(core().failure("a test")) << "the word ended the epoch";
  const auto text = core().given_by(*epoch_, GroupRank{1});
  ASSERT_TRUE(text);
  EXPECT_LE(text->size(), GivenWords::kMostBytes);
  EXPECT_THAT(*text, testing::StartsWith("f32 [3] [2J xxx"));
  given(epoch_->number(), "another word");
  EXPECT_EQ(core().given_by(*epoch_, GroupRank{1}), text) << "the first counts";
  hear_abort(epoch_->number(), ErrorCode::mismatch, "the reason");
  enter_both();
  EXPECT_FALSE(core().given_by(*epoch_, GroupRank{1})) << "it was of the epoch before";
}

// Early messages

TEST_F(TwoMembers, ManySmallStepsOfTheNextEpochAreKept) {
  constexpr std::size_t kSteps = 20'000;
  const std::uint64_t next = epoch_->number() + 1;
  for (std::uint64_t step = 1; step <= kSteps; ++step)
    hear({.kind = EnvelopeKind::collective, .epoch = next, .sequence = step});
  enter_both();
  ASSERT_EQ(epoch_->number(), next);
  EXPECT_EQ(epoch_->inbox[{1}].size(), kSteps);
  EXPECT_FALSE(core().failure("a test"));
}

TEST_F(TwoMembers, MoreStepsThanFitEndTheEpochWhereTheyBegin) {
  const std::uint64_t next = epoch_->number() + 1;
  const auto hear_step = [&](std::uint64_t sequence) {
    const Envelope envelope{.kind = EnvelopeKind::collective,
                            .from = GroupPlace{1},
                            .group = core().id(),
                            .epoch = next,
                            .sequence = sequence};
    core().on_inbound({1}, {envelope, {}, std::uint64_t{200} << 20, channel().weak_from_this()});
  };
  for (const std::uint64_t sequence : {1, 2, 3}) hear_step(sequence);
  enter_both();
  ASSERT_EQ(epoch_->number(), next);
  EXPECT_EQ(epoch_->inbox[{1}].size(), 1u) << "a later one would be taken for an earlier one";
  const auto failed = core().failure("a test");
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->code, ErrorCode::group_aborted);
  EXPECT_THAT(failed->detail, HasSubstr("more than 256 MiB of collectives came before"));
  // An operation whose messages arrived before that continues.
  auto first = start([](Told& told) { told.on_advance = [] { return true; }; });
  EXPECT_TRUE(first.completion.wait(0s));
  auto second = start();
  EXPECT_FALSE(second.completion.wait(0s));
  // The others learn about it.
  EXPECT_TRUE(
      members_.progress_until([&] { return members_.cores[1]->failure("a test").has_value(); }));
}

TEST_F(TwoMembers, WordsOfManyEpochsAreAFault) {
  for (std::uint64_t more = 1; more <= 64; ++more)
    hear_abort(epoch_->number() + more, ErrorCode::cancelled, "over");
  EXPECT_FALSE(channel().lost());
  hear_abort(epoch_->number() + 1, ErrorCode::cancelled, "over");
  EXPECT_FALSE(channel().lost());
  hear_abort(epoch_->number() + 65, ErrorCode::cancelled, "over");
  EXPECT_TRUE(channel().lost());
}

// Completed and failed operations

// The operation's message arrives, and then the word that its sender has left: both while it is
// advanced.
TEST_F(TwoMembers, WhatCameBeforeTheWordThatSomebodyLeftIsFound) {
  int looks = 0;
  auto started = start([&](Told& told) {
    told.on_advance = [&] {
      if (++looks == 2) other_leaves();
      return looks == 3;
    };
  });
  ASSERT_EQ(looks, 1);
  core().calls().progress();
  ASSERT_EQ(looks, 2);
  EXPECT_FALSE(started.completion.done());
  core().calls().progress();
  ASSERT_TRUE(started.completion.done());
  const auto result = started.completion.wait(0s);
  EXPECT_TRUE(result) << result.error().message();
}

TEST_F(TwoMembers, WhatWaitsForWhoHasLeftFailsAndNothingElse) {
  auto first = start([](Told& told) { told.awaited = {}; });
  EXPECT_FALSE(core().calls().has_input());
  other_leaves();
  EXPECT_TRUE(core().calls().has_input()) << "of a loss that nobody looked at";
  core().calls().progress();
  EXPECT_FALSE(core().calls().has_input());
  EXPECT_FALSE(first.completion.done());
  auto second = start();
  first.operation->on_advance = [] { return true; };
  core().calls().progress();
  EXPECT_TRUE(first.completion.wait(0s));
  const auto failed = second.completion.wait(0s);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::peer_lost);
  EXPECT_THAT(failed.error().detail, HasSubstr("rank 1"));
}

TEST_F(TwoMembers, WhatIsCompleteByWhatLiesThereWhenTheEpochFailsIsComplete) {
  // The epoch fails between two looks, or while the operation is advanced.
  for (const bool inside : {false, true}) {
    bool complete = false;
    int looks = 0;
    auto started = start([&](Told& told) {
      told.on_advance = [&] {
        if (inside && ++looks == 2) {
          core().abort("enough");
          complete = true;
          return false;
        }
        return complete;
      };
    });
    if (inside) {
      core().calls().progress();
      EXPECT_FALSE(started.completion.done());
    } else {
      core().abort("enough");
      complete = true;
    }
    EXPECT_TRUE(core().calls().has_input()) << "of a failure";
    core().calls().progress();
    ASSERT_TRUE(started.completion.done());
    const auto result = started.completion.wait(0s);
    EXPECT_TRUE(result) << result.error().message();
    EXPECT_FALSE(core().calls().has_input());
    EXPECT_EQ(core().calls().last_complete(), started.operation->sequence());
    enter_both();
  }
}

TEST_F(TwoMembers, TheErrorIsOfWhatItInterruptedForTheRestTheEpochIsOver) {
  auto first = start();
  int looks = 0;
  auto second = start([&](Told& told) {
    told.on_advance = [&] {
      ++looks;
      return true;
    };
  });
  hear_abort(epoch_->number(), ErrorCode::timeout, "it took too long");
  hear_abort(epoch_->number(), ErrorCode::mismatch, "a later word");
  core().abort("a word of its own");
  core().calls().progress();
  const auto interrupted = first.completion.wait(0s);
  ASSERT_FALSE(interrupted);
  EXPECT_EQ(interrupted.error().code, ErrorCode::timeout);
  EXPECT_THAT(interrupted.error().detail,
              testing::AllOf(HasSubstr("it took too long"), HasSubstr("rank 1")));
  const auto rest = second.completion.wait(0s);
  ASSERT_FALSE(rest);
  EXPECT_EQ(rest.error().code, ErrorCode::group_aborted);
  EXPECT_THAT(rest.error().detail, HasSubstr("it took too long"));
  EXPECT_EQ(looks, 0) << "it had not begun";
  EXPECT_THAT(core().failure("barrier")->detail, HasSubstr("it took too long"));
}

// A member that is done with an operation fails at the next. A slower one still finishes the first.
TEST_F(TwoMembers, WhatComesBeforeTheOperationThatFailedGoesOn) {
  auto first = start();
  auto second = start();
  hear_abort(epoch_->number(), ErrorCode::timeout, "it took too long",
             second.operation->sequence());
  EXPECT_FALSE(core().calls().has_input());
  core().calls().progress();
  EXPECT_FALSE(first.completion.done());
  first.operation->on_advance = [] { return true; };
  core().calls().progress();
  const auto done = first.completion.wait(0s);
  EXPECT_TRUE(done) << done.error().message();
  EXPECT_EQ(core().calls().last_complete(), first.operation->sequence());
  const auto failed = second.completion.wait(0s);
  ASSERT_FALSE(failed);
  EXPECT_THAT(failed.error().detail, HasSubstr("it took too long"));
}

TEST_F(TwoMembers, WhatIsCalledAfterALaterOperationFailedIsDone) {
  hear_abort(epoch_->number(), ErrorCode::timeout, "it took too long", 2);
  const auto done = start([](Told& told) { told.on_advance = [] { return true; }; });
  ASSERT_NE(done.operation, nullptr) << "refused";
  EXPECT_TRUE(done.completion.done());
  EXPECT_EQ(done.operation->sequence(), 1u);
  auto failed = start();
  ASSERT_TRUE(failed.completion.done());
  EXPECT_EQ(failed.operation, nullptr);
  EXPECT_THAT(failed.completion.wait(0s).error().detail, HasSubstr("it took too long"));
}

TEST_F(TwoMembers, AFailureMayTurnOutToBeOfAnEarlierOperation) {
  auto first = start();
  hear_abort(epoch_->number(), ErrorCode::timeout, "of a later one", 2);
  hear_abort(epoch_->number(), ErrorCode::timeout, "later still", 3);
  hear_abort(epoch_->number(), ErrorCode::timeout, "of this one", 1);
  core().calls().progress();
  ASSERT_TRUE(first.completion.done());
  EXPECT_THAT(first.completion.wait(0s).error().detail, HasSubstr("of this one"));
}

// Nobody waits for a part of an operation that its sender has dropped.
TEST_F(TwoMembers, WhoGoesOnToTheNextEpochSaysWhatItDoesNotDoInThisOne) {
  // The operation is under way, or not called at all.
  for (const bool called : {true, false}) {
    const std::uint64_t next = members_.cores[1]->calls().last_complete() + 1;
    std::optional<Started> mine;
    if (called) mine = start();
    std::shared_ptr<Told> theirs;
    auto waiting = members_.cores[1]->calls().start([&](Epoch&, std::uint64_t sequence) {
      theirs = std::make_shared<Told>(sequence);
      theirs->awaited = {GroupRank{0}};
      return Result<std::shared_ptr<Operation>>(theirs);
    });
    hear_abort(epoch_->number(), ErrorCode::mismatch, "of a later one", next + 7);
    std::thread other([&] {
      const auto failed = waiting.wait(kSoon);
      ASSERT_FALSE(failed);
      EXPECT_EQ(failed.error().code, ErrorCode::mismatch) << failed.error().message();
      EXPECT_THAT(failed.error().detail, HasSubstr("of a later one"));
      const auto entered =
          members_.cores[1]->enter(kSoon, GroupCore::Of::those_left, Fence::none, "test");
      EXPECT_TRUE(entered) << entered.error().message();
    });
    const auto entered = core().enter(kSoon, GroupCore::Of::those_left, Fence::none, "test");
    EXPECT_TRUE(entered) << entered.error().message();
    other.join();
    epoch_ = core().epoch();
  }
}

// The member told nobody when it ended the epoch, and the end matters only now.
TEST_F(TwoMembers, WhoHadEndedTheEpochEarlierAnswersALaterWord) {
  const auto none = core().enter(1ms, GroupCore::Of::those_left, Fence::none, "test");
  ASSERT_FALSE(none) << "the other has not come";
  const auto failure = [&] {
    (void)members_.progress_until([&] { return members_.cores[1]->failure("x").has_value(); });
    return members_.cores[1]->failure("x");
  };
  members_.contexts[1].progress();
  EXPECT_FALSE(members_.cores[1]->failure("x"));
  hear_abort(epoch_->number(), ErrorCode::mismatch, "of operation 3", 3);
  auto first = members_.cores[1]->calls().start([&](Epoch&, std::uint64_t sequence) {
    return Result<std::shared_ptr<Operation>>(std::make_shared<Told>(sequence));
  });
  ASSERT_TRUE(failure());
  EXPECT_THAT(failure()->detail, HasSubstr("the next one is being made"));
  EXPECT_TRUE(members_.progress_until([&] { return first.done(); })) << "it would wait";
  EXPECT_FALSE(first.wait(0s));
}

// The error is the first end of the epoch, also for a call that was about to time out.
TEST_F(TwoMembers, ATimeoutThatComesSecondIsNotTheError) {
  std::shared_ptr<Told> told;
  const auto failed = core().calls().run(
      [&](Epoch&, std::uint64_t sequence) {
        told = std::make_shared<Told>(sequence);
        told->on_waits_for = [&] { core().abort("the first word"); };
        return Result<std::shared_ptr<Operation>>(told);
      },
      1ms);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::cancelled) << failed.error().message();
  EXPECT_THAT(failed.error().detail, HasSubstr("the first word"));
}

TEST_F(TwoMembers, NobodyRingsForWhatIsOver) {
  for (const bool fails : {false, true}) {
    auto started = start();
    EXPECT_EQ(channel().link().waiting_for_flags, 1u);
    if (fails)
      core().abort("enough");
    else
      started.operation->on_advance = [] { return true; };
    core().calls().progress();
    EXPECT_TRUE(started.completion.done());
    EXPECT_EQ(channel().link().waiting_for_flags, 0u);
  }
}

TEST_F(TwoMembers, WhoeverCannotLookSaysThatThereMayBeSomething) {
  bool seen = false;
  auto started = start([&](Told& told) {
    told.on_advance = [&] {
      std::thread([&] { seen = core().calls().has_input(); }).join();
      return true;
    };
  });
  EXPECT_TRUE(started.completion.done());
  EXPECT_TRUE(seen);
  EXPECT_FALSE(core().calls().has_input());
  auto waiting = start();
  EXPECT_FALSE(core().calls().has_input());
  waiting.operation->input = true;
  EXPECT_TRUE(core().calls().has_input());
}

// A message that is incomplete when its sender leaves may be the one that an operation waits for.
TEST_F(TwoMembers, WhoHasLeftIsNotGoneWhileSomethingOfItArrives) {
  const auto transfer = std::make_shared<Transfer>();
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.tag = static_cast<std::uint32_t>(EnvelopeKind::collective);
  descriptor.header_bytes = sizeof(Envelope);
  channel().on_message({descriptor, {}, transfer});
  ASSERT_TRUE(channel().arriving());
  auto started = start();
  other_leaves();
  core().calls().progress();
  EXPECT_FALSE(started.completion.done());
  transfer->aborted = true;
  channel().on_transfer_ended(*transfer);
  core().calls().progress();
  ASSERT_TRUE(started.completion.done());
  EXPECT_EQ(started.completion.wait(0s).error().code, ErrorCode::peer_lost);
}

TEST_F(TwoMembers, WhatArrivesNoMoreSinceTheLinkIsOverIsNotWaitedFor) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.tag = static_cast<std::uint32_t>(EnvelopeKind::collective);
  descriptor.header_bytes = sizeof(Envelope);
  channel().on_message({descriptor, {}, std::make_shared<Transfer>()});
  auto started = start();
  (void)members_.contexts[1].close(0s);
  EXPECT_TRUE(test::eventually([&] { return started.completion.done(); },
                               [&] { members_.contexts[0].progress(); }));
  EXPECT_EQ(started.completion.wait(0s).error().code, ErrorCode::peer_lost);
}

// A member that has not got the reason would take the leaving member for the cause.
TEST_F(TwoMembers, WhoLeavesPassesOnWhyTheEpochIsOver) {
  hear_abort(epoch_->number(), ErrorCode::mismatch, "the reason");
  core().leave();
  EXPECT_TRUE(test::eventually([&] { return members_.cores[1]->failure("barrier").has_value(); },
                               [&] { members_.contexts[1].progress(); }));
  EXPECT_THAT(members_.cores[1]->failure("barrier")->detail, HasSubstr("the reason"));
}

// A waiting caller may sleep only when nothing moves.
TEST_F(TwoMembers, NobodyIsAskedToRingWhileTheOperationMoves) {
  if (members_.contexts[0].describe().find("cpus: 1,") != std::string::npos)
    GTEST_SKIP() << "one core: nobody spins";
  const auto begin = std::chrono::steady_clock::now();
  std::uint32_t asked = 0;
  const auto done = core().calls().run(
      [&](Epoch&, std::uint64_t sequence) {
        auto told = std::make_shared<Told>(sequence);
        told->on_advance = [&, told = told.get()] {
          ++told->steps;
          asked += channel().link().waiting_for_flags;
          return std::chrono::steady_clock::now() - begin > 50ms;  // longer than any thread spins
        };
        return Result<std::shared_ptr<Operation>>(told);
      },
      kSoon);
  EXPECT_TRUE(done);
  EXPECT_EQ(asked, 0u);
}

// The agreement

// A member that withdraws its reports makes the leader ask all others again.
TEST(FourMembers, AMemberThatDoesNotReadIsToldNoMoreThanItWasToldBefore) {
  for (const Transport transport : {Transport::automatic, Transport::tcp}) {
    test::GroupCores members(4, transport);
    members.join();
    GroupCore& leader = *members.cores[0];
    const auto report = [&](MemberMask absent) {
      AgreementMessage message;
      message.kind = AgreementMessage::Kind::absent;
      message.epoch = 1;
      message.mask = absent;
      const auto bytes = std::make_shared<std::vector<std::byte>>(encode(message));
      leader.on_inbound(
          {1}, {{.kind = EnvelopeKind::agreement, .from = GroupPlace{1}, .group = leader.id()},
                {.place = IncomingBody::Place::private_copy, .owner = bytes, .data = bytes->data()},
                bytes->size(),
                {}});
    };
    const Link& unread = leader.epoch()->channels[{2}]->link();
    std::size_t most_bytes = 0;
    MemberMask third;
    third.set(3);
    // As many words as a socket takes, and many more.
    for (int i = 0; i < 60'000; ++i) {
      report(i % 2 == 0 ? third : MemberMask());
      most_bytes = std::max(most_bytes, unread.posted_bytes());
    }
    EXPECT_GT(most_bytes, 0u) << "it read everything";
    EXPECT_LE(most_bytes, 66'000u);
    // The members still agree when it reads.
    report(third);
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        const auto entered =
            members.cores[rank]->enter(kSoon, GroupCore::Of::those_left, Fence::none, "test");
        EXPECT_TRUE(entered) << entered.error().message();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(leader.epoch()->size(), 3u);
  }
}

// Epochs

TEST_F(TwoMembers, TheEndOfAnotherChannelIsNotOfThisMember) {
  auto started = start();
  const auto before = std::make_shared<MemberChannel>(
      core().context(), channel().link().shared_from_this(), 77, std::weak_ptr<ChannelOwner>());
  core().on_lost({1}, *before, Error{ErrorCode::peer_lost, "test", "it died"}, Absence::proved);
  core().calls().progress();
  EXPECT_FALSE(started.completion.done());
  EXPECT_FALSE(core().failure("barrier"));
  EXPECT_FALSE(core().lost(*epoch_, {1}));
}

TEST_F(TwoMembers, AnAbortOfAnEpochThatIsOverEndsNothing) {
  const std::uint64_t first = epoch_->number();
  enter_both();
  hear_abort(first, ErrorCode::mismatch, "of long ago");
  EXPECT_FALSE(core().failure("barrier"));
}

TEST_F(TwoMembers, AnAbortOfTheNextEpochEndsItWhenItBegins) {
  hear_abort(epoch_->number() + 1, ErrorCode::mismatch, "of the next one");
  EXPECT_FALSE(core().failure("barrier"));
  enter_both();
  const auto failure = core().failure("barrier");
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->detail, HasSubstr("of the next one"));
  // The abort is forgotten after that.
  enter_both();
  EXPECT_FALSE(core().failure("barrier"));
}

TEST_F(TwoMembers, OfSeveralAbortsOfTheNextEpochTheEarliestCounts) {
  for (const std::uint64_t first : {5, 2, 7})
    hear_abort(epoch_->number() + 1, ErrorCode::mismatch, "of " + std::to_string(first), first);
  enter_both();
  EXPECT_TRUE(start([](Told& told) { told.on_advance = [] { return true; }; }).completion.wait(0s));
  const auto second = start().completion.wait(0s);
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().detail, HasSubstr("of 2"));
}

TEST_F(TwoMembers, AStepOfTheNextEpochWaitsAndThoseOfOthersAreDropped) {
  const std::uint64_t first = epoch_->number();
  const auto hear_step = [&](std::uint64_t epoch, std::uint64_t sequence) {
    hear({.kind = EnvelopeKind::collective, .epoch = epoch, .sequence = sequence});
  };
  hear_step(first + 1, 10);
  hear_step(first + 1, 11);
  EXPECT_TRUE(epoch_->inbox[{1}].empty());
  enter_both();
  ASSERT_EQ(epoch_->number(), first + 1);
  hear_step(first, 12);
  hear_step(first + 1, 13);
  std::vector<std::uint64_t> sequences;
  for (const InboundMessage& inbound : epoch_->inbox[{1}])
    sequences.push_back(inbound.envelope.sequence);
  EXPECT_EQ(sequences, (std::vector<std::uint64_t>{10, 11, 13}));
  enter_both();
  EXPECT_TRUE(epoch_->inbox[{1}].empty());
}

TEST_F(TwoMembers, NumbersOfOperationsGoOnWithTheHighest) {
  for (int i = 0; i < 3; ++i) start([](Told& told) { told.on_advance = [] { return true; }; });
  EXPECT_EQ(core().calls().last_complete(), 3u);
  enter_both();
  std::uint64_t given = 0;
  auto next = members_.cores[1]->calls().start([&](Epoch&, std::uint64_t sequence) {
    given = sequence;
    return Result<std::shared_ptr<Operation>>(std::make_shared<Told>(sequence));
  });
  EXPECT_EQ(given, 4u);
  EXPECT_EQ(start().operation->sequence(), 4u);
  // The other member had completed nothing.
  EXPECT_EQ(core().calls().complete_everywhere(), 0u);
  EXPECT_EQ(core().calls().last_complete(), 3u);
}

// A growing group does not end operations that are under way; a shrinking one does.
TEST_F(TwoMembers, GrowingWaitsForWhatIsUnderWay) {
  int looks = 0;
  auto started = start([&](Told& told) {
    told.on_advance = [&] {
      EXPECT_FALSE(core().failure("barrier"));
      return ++looks == 3;
    };
  });
  enter_both(GroupCore::Of::those_here);
  const auto result = started.completion.wait(0s);
  EXPECT_TRUE(result) << result.error().message();
  auto interrupted = start();
  enter_both(GroupCore::Of::those_left);
  const auto failed = interrupted.completion.wait(0s);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::group_aborted);
  EXPECT_FALSE(core().failure("barrier"));
}

// Each member has the other's place in the mesh: messages of a group carry the places of that
// group.
TEST(GroupOverLinks, AStepIsSaidByTheSendersPlaceInItsGroup) {
  test::GroupCores members(2, Transport::tcp);
  members.join();
  std::vector<std::shared_ptr<GroupCore>> swapped(2);
  std::atomic<int> made{0};
  const auto enter = [&](std::uint32_t rank) {
    swapped[rank] = members.cores[rank]
                        ->subgroup(std::array{GroupRank{1}, GroupRank{0}}, kSoon, "swapped")
                        .value();
    ++made;
    while (made != 2) members.contexts[rank].progress();
  };
  std::thread other([&] { enter(1); });
  enter(0);
  other.join();
  GroupCore& sender = *swapped[0];
  const Completion<void> barrier = sender.calls().start([&](Epoch& epoch, std::uint64_t sequence) {
    return make_operation(sender, epoch, sequence, {}, Hold::keep);
  });
  const auto epoch = swapped[1]->epoch();
  std::optional<Envelope> said;
  ASSERT_TRUE(members.progress_until([&] {
    const Lock lock(epoch->inbox_mutex);
    for (const auto& inbox : epoch->inbox)
      if (!inbox.empty()) said = inbox.front().envelope;
    return said.has_value();
  }));
  EXPECT_EQ(said->from.in_group(), epoch->places[sender.epoch()->self]);
  for (const auto& core : swapped) core->leave();
}

}  // namespace
}  // namespace tendon::detail
