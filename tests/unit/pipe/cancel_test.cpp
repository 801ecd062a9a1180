// SPDX-License-Identifier: Apache-2.0
// docs/threads.md, "Cancelling and dropping".
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <tendon/session/limits.hpp>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Cancel : public PipeTest {};
TENDON_ON_EVERY_WAY(Cancel);

TEST_P(Cancel, EndsBothDirectionsAtBothEnds) {
  PipePair pair = connect();
  pair.client.cancel();
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::cancelled));
  EXPECT_TRUE(fails_with(pair.client.send(numbered(1), kPatience), ErrorCode::cancelled));
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::cancelled, "client"));
  EXPECT_TRUE(fails_with(pair.server.send(numbered(1), kPatience), ErrorCode::cancelled, "client"));
}

TEST_P(Cancel, TellsThePeerTheReason) {
  for (const auto& [said, heard] : {std::pair(ErrorCode::server_busy, ErrorCode::server_busy),
                                    std::pair(ErrorCode::timeout, ErrorCode::cancelled)}) {
    PipePair pair = connect();
    pair.server.cancel(Error{said, "seats", "all seats are taken"});
    EXPECT_TRUE(fails_with(pair.client.recv(kPatience), heard, "all seats are taken"));
    EXPECT_TRUE(fails_with(pair.client.send(numbered(1), kPatience), heard));
    EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::cancelled, "here"));
    EXPECT_TRUE(fails_with(pair.server.send(numbered(1), kPatience), ErrorCode::cancelled));
  }
}

TEST_P(Cancel, AReasonIsCutBetweenCharactersAndItsBrokenBytesAreEscaped) {
  std::string long_one = "x";
  for (std::size_t i = 0; i < kMaxReasonBytes; ++i) long_one += "\xC3\xA9";
  for (const std::string& said : {long_one, std::string("caf\xE9 is closed")}) {
    PipePair pair = connect();
    pair.server.cancel(Error{ErrorCode::server_busy, "seats", said});
    const auto heard = pair.client.recv(kPatience);
    ASSERT_TRUE(fails_with(heard, ErrorCode::server_busy,
                           said == long_one ? said.substr(0, kMaxReasonBytes - 1)
                                            : std::string("caf\\xe9 is closed")));
    EXPECT_FALSE(heard.error().detail.ends_with(' ')) << "half a character became a space";
  }
}

TEST_P(Cancel, ByTheAcceptingEnd) {
  PipePair pair = connect();
  pair.server.cancel();
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::cancelled, "server"));
  EXPECT_TRUE(fails_with(pair.client.send(numbered(1), kPatience), ErrorCode::cancelled));
}

TEST_P(Cancel, DropsAndCountsUnreadMessages) {
  PipePair pair = connect();
  for (std::int64_t n = 0; n < 7; ++n)
    ASSERT_TRUE(succeeds(pair.server.send(numbered(n), kPatience)));
  auto last = pair.server.send_async(Storage::allocate(1).value());
  EXPECT_TRUE(succeeds(last.wait(kPatience)));
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 0);
  // The peer's flush shows that all messages are here; in shared memory, at least in the ring.
  std::atomic<bool> flushed{false};
  std::thread flushing([&] {
    EXPECT_TRUE(succeeds(pair.server.flush(kPatience)));
    flushed = true;
  });
  ASSERT_TRUE(eventually([&] { return flushed.load(); },
                         [&] {
                           pair.client_context.progress();
                           // Only calls look at a shared-memory link without a service thread.
                           TensorDict other = patterned(0, 3);
                           (void)pair.client.recv_into(other, 0s);
                         }));
  flushing.join();
  // Takes in the messages in the ring.
  EXPECT_TRUE(succeeds(pair.client.flush(kPatience)));
  TensorDict other = patterned(0, 3);
  EXPECT_TRUE(fails_with(pair.client.recv_into(other, 0s), ErrorCode::schema_mismatch));
  pair.client.cancel();
  EXPECT_EQ(pair.client.stats().dropped, 7u);
}

TEST_P(Cancel, ReleasesAThreadThatWaits) {
  PipePair pair = connect();
  std::thread receiver([&] {
    auto received = pair.server.recv(Deadline::never());
    while (!received && received.error().code == ErrorCode::busy)
      received = pair.server.recv(Deadline::never());
    EXPECT_TRUE(fails_with(received, ErrorCode::cancelled));
  });
  // A second thread meets `busy` only once the other one is inside recv().
  ASSERT_TRUE(eventually([&] {
    auto polled = pair.server.recv(0s);
    return !polled && polled.error().code == ErrorCode::busy;
  }));
  pair.server.cancel();
  receiver.join();
  EXPECT_TRUE(fails_with(pair.client.recv(kPatience), ErrorCode::cancelled));
}

TEST_P(Cancel, LeavesOtherPipesOfTheLinkAlone) {
  PipePair pair = connect();
  auto [client2, server2] = another_pipe(pair);
  pair.client.cancel();
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::cancelled));
  ASSERT_TRUE(succeeds(client2.send(patterned(1, 100'000), kPatience)));
  EXPECT_TRUE(is_patterned(server2.recv(kPatience).value(), 1, 100'000));
}

TEST_P(Cancel, ACancelledReceiveTakesNoMessage) {
  PipePair pair = connect();
  Completion<TensorDict> pending = pair.client.recv_async();
  EXPECT_EQ(pending.state(), CompletionStatus::pending);
  pending.cancel();
  EXPECT_TRUE(fails_with(pending.wait(kPatience), ErrorCode::cancelled));
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 1);
}

TEST_P(Cancel, DroppingAReceiveThatHasNoMessageCancelsIt) {
  PipePair pair = connect();
  { Completion<TensorDict> dropped = pair.client.recv_async(); }
  ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 1);
}

TEST_P(Cancel, DroppingAMatchedReceivePutsTheMessageBackAtTheHead) {
  PipePair pair = connect();
  {
    Completion<TensorDict> matched = pair.client.recv_async();
    ASSERT_TRUE(succeeds(pair.server.send(numbered(1), kPatience)));
    ASSERT_TRUE(succeeds(pair.server.send(numbered(2), kPatience)));
    ASSERT_TRUE(
        eventually([&] { return matched.done(); }, [&] { pair.client_context.progress(); }));
  }
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 1);
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 2);
  EXPECT_TRUE(fails_with(pair.client.recv(0s), ErrorCode::timeout));
}

TEST_P(Cancel, MessagesThatSeveralReceivesPutBackKeepTheirOrder) {
  PipePair pair = connect();
  {
    std::vector<Completion<TensorDict>> matched;
    for (int n = 0; n < 4; ++n) matched.push_back(pair.client.recv_async());
    for (std::int64_t n = 0; n < 4; ++n)
      ASSERT_TRUE(succeeds(pair.server.send(numbered(n), kPatience)));
    ASSERT_TRUE(
        eventually([&] { return matched.back().done(); }, [&] { pair.client_context.progress(); }));
    for (const std::size_t first : {2, 0, 3, 1}) std::move(matched[first]).give_back();
  }
  for (std::int64_t n = 0; n < 4; ++n) EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), n);
}

// Another thread copies the message while give_back() ends its receive, earlier or later in each
// round.
TEST_P(Cancel, AReceiveThatIsGivenBackAsItsMessageComesIsNotOvertaken) {
  constexpr std::uint64_t kSize = 4 << 20;
  PipePair pair = connect();
  const TensorDict large = patterned(1, kSize);
  const TensorDict small = numbered(2);
  for (std::uint64_t round = 0; round < 60; ++round) {
    Completion<TensorDict> matched = pair.client.recv_into_async(patterned(0, kSize));
    ASSERT_TRUE(succeeds(pair.server.send(large, kPatience)));
    ASSERT_TRUE(succeeds(pair.server.send(small, kPatience)));
    for (std::uint64_t looks = 0; looks < 1000 * round && !matched.done(); ++looks) {
    }
    std::move(matched).give_back();
    const auto first = pair.client.recv(kPatience);
    ASSERT_TRUE(succeeds(first));
    ASSERT_TRUE(is_patterned(*first, 1, kSize)) << "round " << round;
    const auto second = pair.client.recv(kPatience);
    ASSERT_TRUE(succeeds(second));
    ASSERT_EQ(number_of(*second), 2);
  }
}

TEST_P(Cancel, AReceiveIntoThatIsGivenBackLeavesACopyInThePipe) {
  PipePair pair = connect();
  TensorDict sent = patterned(1, 3000);
  sent.set("said", "by the peer");
  TensorDict mine = patterned(0, 3000);
  mine.set("own", 1);
  {
    Completion<TensorDict> matched = pair.client.recv_into_async(mine);
    ASSERT_TRUE(succeeds(pair.server.send(sent, kPatience)));
    ASSERT_TRUE(succeeds(pair.server.send(numbered(2), kPatience)));
    ASSERT_TRUE(
        eventually([&] { return matched.done(); }, [&] { pair.client_context.progress(); }));
    std::move(matched).give_back();
  }
  Tensor written = mine.find("x").value();
  fill_pattern(written.mutable_bytes(), 7);
  const auto received = pair.client.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(is_patterned(*received, 1, 3000));
  EXPECT_EQ(received->find_value("said").value(), Value("by the peer"));
  EXPECT_FALSE(received->contains("own"));
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), 2);
}

TEST_P(Cancel, AReceiveIntoThatIsDroppedLeavesItsMessageWhereItLies) {
  PipePair pair = connect();
  TensorDict mine = patterned(0, 3000);
  {
    Completion<TensorDict> matched = pair.client.recv_into_async(mine);
    ASSERT_TRUE(succeeds(pair.server.send(patterned(1, 3000), kPatience)));
    ASSERT_TRUE(
        eventually([&] { return matched.done(); }, [&] { pair.client_context.progress(); }));
  }
  EXPECT_TRUE(is_patterned(mine, 1, 3000));
  EXPECT_TRUE(fails_with(pair.client.recv(0s), ErrorCode::timeout));
}

TEST_P(Cancel, ACancelledSendIsNeverDelivered) {
  // The receiver takes nothing, so that sends queue up until one must wait.
  PipePair pair =
      connect({.link_cap_bytes = 1 << 20}, {.link_cap_bytes = 1 << 20, .pool_cap_bytes = 1 << 20});
  std::vector<Completion<void>> sends;
  std::vector<bool> delivered;
  for (std::uint64_t n = 0; n < 600 && (sends.empty() || sends.back().done()); ++n)
    sends.push_back(pair.server.send_async(numbered(static_cast<std::int64_t>(n))));
  ASSERT_FALSE(sends.back().done()) << "nothing ever had to wait";
  sends.back().cancel();
  EXPECT_TRUE(fails_with(sends.back().wait(kPatience), ErrorCode::cancelled));
  for (std::size_t n = 0; n + 1 < sends.size(); ++n)
    ASSERT_TRUE(succeeds(sends[n].wait(kPatience))) << n;
  for (std::size_t n = 0; n + 1 < sends.size(); ++n)
    ASSERT_EQ(number_of(pair.client.recv(kPatience).value()), static_cast<std::int64_t>(n));
  ASSERT_TRUE(succeeds(pair.server.send(numbered(-1), kPatience)));
  EXPECT_EQ(number_of(pair.client.recv(kPatience).value()), -1) << "the cancelled one came";
}

TEST_P(Cancel, CancellingWhatIsDoneChangesNothing) {
  PipePair pair = connect();
  Completion<void> sent = pair.client.send_async(numbered(1));
  ASSERT_TRUE(eventually([&] { return sent.done(); }, [&] { pair.client_context.progress(); }));
  sent.cancel();
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 1);
}

}  // namespace
}  // namespace tendon::test
