// SPDX-License-Identifier: Apache-2.0
// A link as the product uses it: several senders, receivers that poll, and a Context that turns,
// all at once. The thread sanitizer sees faults that the other tests cannot.
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "link_pair.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kMiB = 1ull << 20;

class LinkThreads : public testing::TestWithParam<LinkFactory> {};

TEST_P(LinkThreads, SendersReceiversAndTheEngineShareALink) {
  LinkPair pair;
  GetParam().make(pair, 128 * kMiB);
  constexpr std::uint32_t kPipes = 3;
  constexpr std::uint64_t kMessages = 30;
  for (std::uint32_t pipe = 1; pipe <= kPipes; ++pipe) {
    pair.b.attach(pipe);
    pair.a.attach(pipe);
  }
  std::atomic<bool> stop{false};
  std::thread core([&] {
    while (!stop) pair.reactor.turn(1);
  });
  std::atomic<std::size_t> withdrawn_count{0};
  std::vector<std::thread> senders;
  for (std::uint32_t pipe = 1; pipe <= kPipes; ++pipe) {
    senders.emplace_back([&, pipe] {
      LinkEnd& from = pipe == 2 ? pair.b : pair.a;
      for (std::uint64_t sequence = 1; sequence <= kMessages; ++sequence) {
        const std::uint64_t size = sequence % 3 == 0 ? 2 * kMiB + sequence : 1000 * sequence;
        OutgoingMessage message(pipe, sequence, size, pipe * 1000 + sequence);
        const bool give_up = sequence % 7 == 0;
        bool done = false;
        for (int step = 0; !done && !(give_up && step == 3); ++step) {
          const auto sent = from.link->send(message.op(), Deadline::never());
          ASSERT_TRUE(succeeds(sent));
          done = *sent == Sent::done;
          if (!done && !give_up) from.poll();
        }
        if (!done && from.link->withdraw(message.op())) ++withdrawn_count;
        message.scribble();
      }
    });
  }
  for (std::thread& sender : senders) sender.join();
  const auto complete_count = [&](LinkEnd& end, std::uint32_t pipe) {
    std::lock_guard lock(end.link->receive_mutex());
    return end.sinks[pipe]->complete_count();
  };
  EXPECT_TRUE(eventually(
      [&] {
        return complete_count(pair.b, 1) + complete_count(pair.a, 2) + complete_count(pair.b, 3) +
                   withdrawn_count ==
               kPipes * kMessages;
      },
      [&] {
        // Polls as waiting receivers do; shm has no other way to receive.
        pair.a.poll();
        pair.b.poll();
      }));
  stop = true;
  core.join();
  for (std::uint32_t pipe = 1; pipe <= kPipes; ++pipe) {
    RecordingSink& sink = *(pipe == 2 ? pair.a : pair.b).sinks[pipe];
    std::uint64_t last = 0;
    for (std::size_t i = 0; i < sink.received.size(); ++i) {
      const std::uint64_t sequence = sink.received[i].descriptor.sequence;
      EXPECT_GT(sequence, last);
      last = sequence;
      if (!sink.complete(i)) continue;
      const std::uint64_t size = sequence % 3 == 0 ? 2 * kMiB + sequence : 1000 * sequence;
      const OutgoingMessage expected(pipe, sequence, size, pipe * 1000 + sequence);
      EXPECT_TRUE(sink.body(i) == expected.expected()) << pipe << "/" << sequence;
    }
  }
}

TEST_P(LinkThreads, FailingWakesNobodyIntoFreedMemory) {
  for (int round = 0; round < 20; ++round) {
    LinkPair pair;
    GetParam().make(pair, 64 * kMiB);
    pair.b.attach(1);
    std::thread sender([&] {
      for (std::uint64_t sequence = 1;; ++sequence) {
        OutgoingMessage message(1, sequence, 3 * kMiB, sequence);
        for (;;) {
          const auto sent = pair.a.link->send(message.op(), Deadline::never());
          if (!sent) {
            EXPECT_EQ(sent.error().code, ErrorCode::peer_lost);
            // The thread that fails the link may have finished this op just before.
            EXPECT_TRUE(pair.a.link->withdraw(message.op()) || message.op().done);
            return;
          }
          if (*sent == Sent::done) break;
          pair.a.poll();
        }
      }
    });
    for (int turn = 0; turn < round; ++turn) {
      pair.b.poll();
      pair.reactor.turn(0);
      std::lock_guard lock(pair.b.link->receive_mutex());
      pair.b.sinks[1]->drop_bodies();
    }
    pair.a.link->fail(Error{ErrorCode::peer_lost, "test", "the test says so"}, Death::proved);
    sender.join();
    EXPECT_EQ(pair.a.observer.ended_count, 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Links, LinkThreads, testing::ValuesIn(links_of_the_product()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace tendon::test
