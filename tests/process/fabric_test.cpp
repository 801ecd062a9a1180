// SPDX-License-Identifier: Apache-2.0
// Publishers and subscribers in processes that are stopped and killed: what docs/fabric.md
// promises.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "process/peer.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSize = 100'000;

/// What a subscriber in another process said of one sample.
struct Heard {
  std::uint64_t sequence = 0;
  std::uint64_t first = 0;  ///< of its gap; 0: none
  std::uint64_t last = 0;
  std::string reason{};

  friend bool operator==(const Heard&, const Heard&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Heard& heard) {
    return out << heard.sequence << " after " << heard.first << "-" << heard.last << " "
               << heard.reason;
  }
};

Heard hear(Peer& peer, const std::string& subscriber) {
  const std::string answer = peer.ask("recv " + subscriber + ' ' + std::to_string(kSize));
  EXPECT_TRUE(is_ok(answer));
  std::istringstream words(answer.substr(std::min<std::size_t>(3, answer.size())));
  Heard heard;
  words >> heard.sequence >> heard.first >> heard.last >> heard.reason;
  return heard;
}

class Fabric : public ProcessTest {
 protected:
  [[nodiscard]] static Peer::Options other(const std::string& name, const std::string& transport,
                                           int lease_ms, const std::string& peer) {
    return {{name, transport, std::to_string(lease_ms), peer}, {}, "node_main"};
  }
  void publish(Publisher& publisher, int count) {
    for (int n = 0; n < count; ++n)
      ASSERT_TRUE(succeeds(publisher.publish(patterned(++published_, kSize))));
  }

  std::atomic<int> lost_{0};  // outlives what counts in it
  Context context_ = Context::create({.name = "p", .lease = 500ms}).value();
  Node node_ = Node::join(context_,
                          {.domain = "brain",
                           .name = "p",
                           .peers = std::vector<std::string>{},
                           .listen = "127.0.0.1:0"},
                          kPatience)
                   .value();
  std::uint64_t published_ = 0;
};

TEST_F(Fabric, AStoppedProcessKeepsItsWindowAndMissesOneGap) {
  Publisher publisher = Publisher::declare(node_, "frames", {.history = keep_last(8)}).value();
  Peer s(other("s", "shm", 500, node_.address()));
  Peer t(other("t", "tcp", 500, node_.address()));
  ASSERT_TRUE(is_ok(s.ask("subscribe frames s1")));
  ASSERT_TRUE(is_ok(s.ask("subscribe frames s2")));
  ASSERT_TRUE(is_ok(t.ask("subscribe frames t")));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(3, kPatience)));
  publish(publisher, 1);
  EXPECT_EQ(hear(s, "s1"), Heard{1});
  EXPECT_EQ(hear(s, "s2"), Heard{1});
  EXPECT_EQ(hear(t, "t"), Heard{1});
  s.signal(SIGSTOP);
  for (std::uint64_t sequence = 2; sequence <= 101; ++sequence) {
    publish(publisher, 1);
    EXPECT_EQ(hear(t, "t"), Heard{sequence}) << "one that runs is not disturbed";
  }
  s.signal(SIGCONT);
  for (const char* subscriber : {"s1", "s2"}) {
    for (std::uint64_t sequence = 2; sequence <= 17; ++sequence)
      EXPECT_EQ(hear(s, subscriber), Heard{sequence});
    EXPECT_EQ(hear(s, subscriber), (Heard{94, 18, 93, "overflow"}));
    for (std::uint64_t sequence = 95; sequence <= 101; ++sequence)
      EXPECT_EQ(hear(s, subscriber), Heard{sequence});
  }
  EXPECT_EQ(publisher.stats().subscribers, 3u);
}

TEST_F(Fabric, AStoppedProcessIsWaitedForOnceWithBlock) {
  Publisher publisher =
      Publisher::declare(node_, "frames", {.history = keep_last(8), .overflow = Overflow::block})
          .value();
  Peer s(other("s", "shm", 500, node_.address()));
  Peer t(other("t", "tcp", 500, node_.address()));
  ASSERT_TRUE(is_ok(s.ask("subscribe frames s1")));
  ASSERT_TRUE(is_ok(t.ask("subscribe frames t")));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  const auto publish_until = [&](Deadline deadline) {
    std::string names;
    for (const std::string& name :
         publisher.publish(patterned(++published_, kSize), deadline).value().lagging)
      names += name.substr(0, name.find(' ')) + ';';
    return names;
  };
  s.signal(SIGSTOP);
  for (std::uint64_t sequence = 1; sequence <= 16; ++sequence) {
    EXPECT_EQ(publish_until(Deadline::never()), "");
    EXPECT_EQ(hear(t, "t"), Heard{sequence});
  }
  EXPECT_EQ(publish_until(50ms), "s;");
  EXPECT_EQ(hear(t, "t"), Heard{17});
  // Without end, if it waited for the one that let a deadline pass.
  for (std::uint64_t sequence = 18; sequence <= 40; ++sequence) {
    EXPECT_EQ(publish_until(Deadline::never()), "s;");
    EXPECT_EQ(hear(t, "t"), Heard{sequence}) << "one that runs is not disturbed";
  }
  s.signal(SIGCONT);
  for (std::uint64_t sequence = 1; sequence <= 16; ++sequence)
    EXPECT_EQ(hear(s, "s1"), Heard{sequence});
  EXPECT_EQ(hear(s, "s1"), (Heard{33, 17, 32, "overflow"}));
  for (std::uint64_t sequence = 34; sequence <= 40; ++sequence)
    EXPECT_EQ(hear(s, "s1"), Heard{sequence});
  EXPECT_EQ(publish_until(Deadline::never()), "");
  EXPECT_EQ(hear(s, "s1"), Heard{41});
}

TEST_F(Fabric, AProcessThatIsLostByItsLeaseComesBackAndKnowsWhatItMissed) {
  context_.on_member([this](const MemberEvent& event) {
    if (event.kind == MemberEventKind::lost) ++lost_;
  });
  Publisher publisher = Publisher::declare(node_, "frames", {.history = keep_last(8)}).value();
  Peer t(other("t", "tcp", 500, node_.address()));
  ASSERT_TRUE(is_ok(t.ask("subscribe frames t")));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  publish(publisher, 1);
  EXPECT_EQ(hear(t, "t"), Heard{1});
  t.signal(SIGSTOP);
  publish(publisher, 50);
  ASSERT_TRUE(eventually([&] { return lost_ != 0; }));
  EXPECT_TRUE(eventually([&] { return publisher.stats().subscribers == 0; }));
  publish(publisher, 49);  // up to 100
  t.signal(SIGCONT);
  std::uint64_t next = 2;
  bool reconnected = false;
  while (next <= 100) {
    const Heard heard = hear(t, "t");
    ASSERT_GE(heard.sequence, next);
    if (heard.sequence != next) {
      EXPECT_EQ(heard.first, next);
      EXPECT_EQ(heard.last, heard.sequence - 1);
      reconnected = reconnected || heard.reason == "reconnect";
    }
    next = heard.sequence + 1;
  }
  EXPECT_TRUE(reconnected);
}

TEST_F(Fabric, APublisherThatIsKilledAndStartsAgainIsAnotherIncarnation) {
  Subscriber subscriber = Subscriber::declare(node_, "frames").value();
  std::uint64_t incarnation = 0;
  std::vector<Sample> kept;
  for (int round = 0; round < 2; ++round) {
    Peer p(other("q", "shm", 500, node_.address()));
    ASSERT_TRUE(is_ok(p.ask("publisher frames 1")));
    ASSERT_TRUE(is_ok(p.ask("wait 1")));
    ASSERT_TRUE(is_ok(p.ask("publish " + std::to_string(kSize) + " 10")));
    p.kill_and_wait();
    // Everything that was published lies here, whatever became of its publisher.
    for (std::uint64_t sequence = 1; sequence <= 10; ++sequence) {
      kept.push_back(subscriber.recv(kPatience).value());
      EXPECT_EQ(kept.back().sequence, sequence);
      EXPECT_EQ(kept.back().publisher, "q");
      EXPECT_TRUE(kept.back().gaps.empty());
    }
    EXPECT_NE(kept.back().incarnation, incarnation);
    incarnation = kept.back().incarnation;
    ASSERT_TRUE(eventually([&] { return subscriber.stats().publishers == 0; },
                           [&] { (void)subscriber.recv(0s); }));
  }
  for (const Sample& sample : kept)
    EXPECT_TRUE(is_patterned(*sample.tensors, sample.sequence, kSize));
  EXPECT_EQ(subscriber.stats().missed, 0u);
}

TEST_F(Fabric, ASubscriberThatIsKilledGivesItsMemoryBack) {
  Publisher publisher = Publisher::declare(node_, "frames").value();
  for (int round = 0; round < 3; ++round) {
    Peer s(other("s", "shm", 500, node_.address()));
    ASSERT_TRUE(is_ok(s.ask("subscribe frames s1")));
    ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
    publish(publisher, 40);
    s.kill_and_wait();
    ASSERT_TRUE(eventually([&] { return publisher.stats().subscribers == 0; }));
  }
  publish(publisher, 40);
  EXPECT_EQ(publisher.stats().history_trimmed, 0u);
}

}  // namespace
}  // namespace tendon::test
