// SPDX-License-Identifier: Apache-2.0
// The memory that unread or unaccepted pipes hold in the receiving process.
#include <gtest/gtest.h>

#include <tendon/core/mutex.hpp>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = 1ull << 20;

class HeldMemory : public PipeTest {
 protected:
  static detail::LinkStats stats_of(const Context& context) {
    return detail::ContextCore::of(context)->links().all()->front()->stats();
  }
};
TENDON_ON_EVERY_WAY(HeldMemory);

// There are more pipes than the cap has room for. An honest sender waits, and nothing is lost.
TEST_P(HeldMemory, ManyPipesShareTheCapOfTheirLink) {
  PipePair pair = connect({.link_cap_bytes = 2 * kMiB}, {.link_cap_bytes = 2 * kMiB});
  std::vector<std::pair<Pipe, Pipe>> pipes;
  for (int i = 0; i < 8; ++i) pipes.push_back(another_pipe(pair));
  std::vector<std::uint64_t> sent(pipes.size(), 0);
  for (std::size_t i = 0; i < pipes.size(); ++i)
    while (sent[i] < 8 && pipes[i].first.send(patterned(sent[i] + 1, 300'000), 0s)) ++sent[i];
  EXPECT_FALSE(pipes.back().first.send(patterned(sent.back() + 1, 300'000), 50ms));
  // An inline message overtakes the waiting ones.
  ASSERT_TRUE(succeeds(pair.client.send(numbered(5), kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 5);
  EXPECT_LE(stats_of(pair.server_context).most_held_bytes, 3 * kMiB);
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    for (std::uint64_t n = 1; n <= sent[i]; ++n)
      EXPECT_TRUE(is_patterned(pipes[i].second.recv(kPatience).value(), n, 300'000)) << i;
  }
  // All of that memory is free again.
  for (std::uint64_t n = 9; n < 30; ++n) {
    ASSERT_TRUE(succeeds(pipes[7].first.send(patterned(n, 1'900'000), kPatience)));
    EXPECT_TRUE(is_patterned(pipes[7].second.recv(kPatience).value(), n, 1'900'000));
  }
  // Only schemas of messages that never arrived are left.
  EXPECT_LT(stats_of(pair.server_context).held_bytes, 10'000u);
}

TEST_P(HeldMemory, AMessageTakenBackMakesRoomForTheNext) {
  PipePair pair = connect({.link_cap_bytes = 2 * kMiB}, {.link_cap_bytes = 2 * kMiB});
  // Nobody reads: some messages leave, and each later one is announced in part at most, and taken
  // back.
  std::uint64_t sent = 0;
  for (int i = 0; i < 40; ++i)
    if (pair.client.send(patterned(sent + 1, 500'000), 0s)) ++sent;
  for (std::uint64_t n = 1; n <= sent; ++n)
    EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), n, 500'000));
  ASSERT_TRUE(succeeds(pair.client.send(patterned(77, 1'900'000), kPatience)));
  EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 77, 1'900'000));
}

// Messages are received in order: both ends forget by one rule, also when schemas are large for the
// cap.
TEST_P(HeldMemory, ManyLargeSchemasAreForgottenAtBothEndsAlike) {
  PipePair pair = connect({.link_cap_bytes = 1 * kMiB}, {.link_cap_bytes = 1 * kMiB});
  const auto batch = [](int kind) {
    TensorDict made;
    for (int leaf = 0; leaf < 100; ++leaf)
      made.set("leaf " + std::to_string(leaf) + " of " + std::to_string(kind),
               Tensor::of<std::int32_t>({1}, {kind}));
    return made;
  };
  for (int round = 0; round < 3; ++round) {
    for (int kind = 0; kind < 20; ++kind) {
      ASSERT_TRUE(succeeds(pair.client.send(batch(kind), kPatience)));
      const auto received = pair.server.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      EXPECT_EQ(received->leaf_count(), 100u);
      EXPECT_TRUE(received->contains("leaf 7 of " + std::to_string(kind)));
    }
  }
  EXPECT_EQ(pair.client.stats().schemas_announced, 60u) << "twenty do not fit at once";
}

// A short encoding becomes a large schema, which stays with its pipe.
TEST_P(HeldMemory, DecodedSchemasOfAllPipesShareTheCapOfTheirLink) {
  constexpr std::uint64_t kCap = 1 * kMiB;
  PipePair pair = connect({.link_cap_bytes = kCap}, {.link_cap_bytes = kCap});
  const auto batch_of = [](int leaves) {
    TensorDict made;
    for (int leaf = 0; leaf < leaves; ++leaf) {
      std::string name = std::to_string(leaf);
      made.set(name.append(230 - name.size(), 'n'), Tensor::empty(DType::u8, {0}).value());
    }
    return made;
  };
  const TensorDict large = batch_of(3600);  // an encoding of 900 KB
  const TensorDict middle = batch_of(100);  // of 25 KB, 400 KB decoded
  std::vector<std::pair<Pipe, Pipe>> pipes;
  for (int i = 0; i < 16; ++i) {
    pipes.push_back(another_pipe(pair));
    ASSERT_TRUE(succeeds(pipes.back().first.send(large, kPatience)));
    EXPECT_TRUE(fails_with(pipes.back().second.recv(kPatience), ErrorCode::limit_exceeded,
                           "link_cap_bytes"));
    EXPECT_LE(stats_of(pair.server_context).kept_bytes, kCap);
    pipes.back() = another_pipe(pair);
  }
  int received = 0;
  for (auto& [from, to] : pipes) {
    ASSERT_TRUE(succeeds(from.send(middle, kPatience)));
    if (to.recv(kPatience)) ++received;
    EXPECT_LE(stats_of(pair.server_context).kept_bytes, kCap);
  }
  EXPECT_EQ(received, 2);
  EXPECT_GT(stats_of(pair.server_context).kept_bytes, kCap / 2);
  // Schemas of closed pipes make room for others.
  pipes.clear();
  EXPECT_EQ(stats_of(pair.server_context).kept_bytes, 0u);
  ASSERT_TRUE(succeeds(pair.client.send(middle, kPatience)));
  EXPECT_TRUE(succeeds(pair.server.recv(kPatience)));
}

class Backlog : public PipeTest {
 protected:
  [[nodiscard]] Context client() const {
    return Context::create({.name = "client", .transport = way().transport}).value();
  }
};
TENDON_ON_BOTH_PATHS(Backlog);

TEST_P(Backlog, APipeWhosePeerIsLostIsNotAccepted) {
  Context server = Context::create({.transport = way().transport}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  Context lost = client();
  Pipe unseen = Pipe::connect(lost, listener.address(), kPatience).value();
  ASSERT_TRUE(succeeds(unseen.send(patterned(1, 100'000), kPatience)));
  const auto link = detail::ContextCore::of(server)->links().all()->front();
  ASSERT_TRUE(eventually([&] { return link->stats().messages_received != 0; }));
  link->fail(Error{ErrorCode::peer_lost, "test", "the test says so"}, detail::Death::not_proved);
  EXPECT_TRUE(fails_with(listener.accept(50ms), ErrorCode::timeout));
  EXPECT_EQ(link->stats().held_bytes, 0u);
  EXPECT_TRUE(eventually([&] { return link.use_count() == 1; }))
      << "nothing keeps the link of a pipe that nobody knows";
}

TEST_P(Backlog, APipeThatWasClosedInOrderIsAcceptedAfterItsPeerIsLost) {
  Context server = Context::create({.transport = way().transport}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  Context lost = client();
  Pipe early = Pipe::connect(lost, listener.address(), kPatience).value();
  ASSERT_TRUE(succeeds(early.send(patterned(1, 100'000), kPatience)));
  ASSERT_TRUE(succeeds(early.close(kPatience))) << "everything is there";
  const auto link = detail::ContextCore::of(server)->links().all()->front();
  // A link delivers in order, so the end of the first pipe has arrived with the second message. A
  // count of messages would not show this, because a sign of life counts as one.
  Pipe late = Pipe::connect(lost, listener.address(), kPatience).value();
  ASSERT_TRUE(succeeds(late.send(patterned(2, 100'000), kPatience)));
  ASSERT_TRUE(eventually([&] { return link->stats().bytes_received >= 200'000; }));
  // A message is counted, under this lock, before its pipe has it.
  { const detail::Lock receiving(link->receive_mutex()); }
  link->fail(Error{ErrorCode::peer_lost, "test", "the test says so"}, detail::Death::not_proved);
  Pipe accepted = listener.accept(kPatience).value();
  EXPECT_TRUE(is_patterned(accepted.recv(kPatience).value(), 1, 100'000));
  EXPECT_TRUE(fails_with(listener.accept(Deadline::now()), ErrorCode::timeout))
      << "the second pipe was not closed";
}

TEST_P(Backlog, APipeWhosePeerLeftInOrderIsAccepted) {
  Context server = Context::create({.transport = way().transport}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  Context leaving = client();
  Pipe early = Pipe::connect(leaving, listener.address(), kPatience).value();
  ASSERT_TRUE(succeeds(early.send(patterned(1, 100'000), kPatience)));
  ASSERT_TRUE(succeeds(early.flush(kPatience)));
  ASSERT_TRUE(succeeds(leaving.close(kPatience)));
  Pipe accepted = listener.accept(kPatience).value();
  EXPECT_TRUE(is_patterned(accepted.recv(kPatience).value(), 1, 100'000));
}

TEST_P(Backlog, OfPeersThatHaveLeftHoldsOneCap) {
  Context server =
      Context::create({.transport = way().transport, .link_cap_bytes = 1 << 20}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  const auto send_and_leave = [&]() -> Result<void> {
    Context leaving = client();
    TENDON_TRY(early, Pipe::connect(leaving, listener.address(), kPatience));
    EXPECT_TRUE(succeeds(early.send(patterned(1, 400'000), kPatience)));
    EXPECT_TRUE(succeeds(early.close(kPatience)));
    EXPECT_TRUE(succeeds(leaving.close(kPatience)));
    // The listener checks links that have ended.
    EXPECT_TRUE(
        eventually([&] { return detail::ContextCore::of(server)->links().all()->empty(); }));
    return {};
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(succeeds(send_and_leave()));
  EXPECT_TRUE(fails_with(send_and_leave(), ErrorCode::server_busy, "of peers that have left"));
  for (int i = 0; i < 3; ++i) {
    Pipe accepted = listener.accept(kPatience).value();
    EXPECT_TRUE(is_patterned(accepted.recv(kPatience).value(), 1, 400'000));
  }
  EXPECT_TRUE(succeeds(send_and_leave()));
}

// Values, which are no payload, are held as well.
TEST_P(Backlog, OfPeersThatHaveLeftCountsValuesToo) {
  Context server =
      Context::create({.transport = way().transport, .link_cap_bytes = 1 << 20}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  TensorDict batch = numbered(1);
  batch.set("text", std::string(400'000, 'v'));
  const auto send_and_leave = [&]() -> Result<void> {
    Context leaving = client();
    TENDON_TRY(early, Pipe::connect(leaving, listener.address(), kPatience));
    EXPECT_TRUE(succeeds(early.send(batch, kPatience)));
    EXPECT_TRUE(succeeds(early.close(kPatience)));
    EXPECT_TRUE(succeeds(leaving.close(kPatience)));
    EXPECT_TRUE(
        eventually([&] { return detail::ContextCore::of(server)->links().all()->empty(); }));
    return {};
  };
  for (int i = 0; i < 3; ++i) (void)send_and_leave();
  EXPECT_TRUE(fails_with(send_and_leave(), ErrorCode::server_busy, "of peers that have left"));
}

// No peer connects after the first one leaves, so the check must run when a peer leaves.
TEST_P(Backlog, OfPeersThatConnectedBeforeAnyLeftHoldsOneCap) {
  constexpr std::uint64_t kCap = 1 << 20;
  constexpr std::uint64_t kSize = 900'000;
  Context server = Context::create({.transport = way().transport, .link_cap_bytes = kCap}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  std::vector<Context> clients;
  std::vector<Pipe> pipes;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(client());
    pipes.push_back(Pipe::connect(clients.back(), listener.address(), kPatience).value());
  }
  const auto links = *detail::ContextCore::of(server)->links().all();
  ASSERT_EQ(links.size(), pipes.size());
  for (std::size_t i = 0; i < pipes.size(); ++i) {
    ASSERT_TRUE(succeeds(pipes[i].send(patterned(i, kSize), kPatience)));
    ASSERT_TRUE(succeeds(pipes[i].close(kPatience)));
    ASSERT_TRUE(succeeds(clients[i].close(kPatience)));
  }
  ASSERT_TRUE(eventually([&] { return detail::ContextCore::of(server)->links().all()->empty(); }));
  // The listener learns of an end a little after the list of links.
  EXPECT_TRUE(eventually([&] {
    std::uint64_t held_bytes = 0;
    for (const auto& link : links) held_bytes += link->stats().held_bytes;
    return held_bytes <= kCap + kCap / 8;
  }));
  // The first one that left is kept; the later ones are dropped.
  Pipe accepted = listener.accept(kPatience).value();
  EXPECT_TRUE(is_patterned(accepted.recv(kPatience).value(), 0, kSize));
  EXPECT_TRUE(fails_with(listener.accept(0s), ErrorCode::timeout));
}

// The memory of such links is unusable for good, so it is enough to watch a few of them.
TEST(RetiredLinks, TheOldestGoesAtTheLimit) {
  Context server = Context::create({.transport = Transport::shm}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  for (std::size_t i = 0; i < kMaxQuarantinedLinks + 3; ++i) {
    Context client = Context::create({.transport = Transport::shm}).value();
    Pipe from = Pipe::connect(client, listener.address(), kPatience).value();
    Pipe to = listener.accept(kPatience).value();
    ASSERT_TRUE(succeeds(to.send(patterned(1, 20'000), kPatience)));  // the peer holds a slot
    detail::ContextCore::of(server)->links().all()->front()->fail(
        Error{ErrorCode::peer_lost, "test", "the test says so"}, detail::Death::not_proved);
  }
  const std::string text = server.describe();
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find("ended link to", at)) != std::string::npos; ++at)
    ++count;
  EXPECT_EQ(count, kMaxQuarantinedLinks);
}

}  // namespace
}  // namespace tendon::test
