// SPDX-License-Identifier: Apache-2.0
// Publishers and subscribers in processes that are stopped and killed: the promises of
// docs/fabric.md, for samples of each size.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <sstream>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "process/peer.hpp"
#include "runtime/settings.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/member_events.hpp"
#include "support/sanitizer.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kHistory = 8;

/// Samples of one size, in the memory of their publisher.
struct Size {
  const char* name;
  std::uint64_t bytes;
  std::uint64_t publish_bytes;  ///< 0: the default
  std::uint64_t under_way;      ///< samples that a subscriber gets while it takes none
  std::uint64_t published;      ///< while it is stopped: more than it gets and the history keeps
};
std::ostream& operator<<(std::ostream& out, const Size& size) { return out << size.name; }

/// The report of a subscriber in another process about one sample.
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

class Fabric : public ProcessTest, public testing::WithParamInterface<Size> {
 protected:
  Fabric() { members_.watch(context_); }
  void SetUp() override {
    constexpr std::uint64_t kBeside = std::uint64_t{2} << 30;  // the others take this much
    if (TENDON_SANITIZED && size().publish_bytes != 0)
      GTEST_SKIP() << "a sanitizer takes minutes for samples of this size";
    if (size().publish_bytes + kBeside > detail::memory_limit_bytes())
      GTEST_SKIP() << "needs " << size().publish_bytes + kBeside << " bytes of memory";
  }
  [[nodiscard]] static const Size& size() { return GetParam(); }
  [[nodiscard]] static std::string its_bytes() { return std::to_string(size().bytes); }
  [[nodiscard]] static Peer::Options other(const std::string& name, const std::string& transport,
                                           const std::string& peer) {
    return {{name, transport, std::to_string(kLease.count()), peer,
             "publish_bytes=" + std::to_string(size().publish_bytes)},
            {},
            "node_main"};
  }
  void publish(Publisher& publisher, std::uint64_t count) {
    for (std::uint64_t n = 0; n < count; ++n)
      ASSERT_TRUE(succeeds(publisher.publish(patterned(++published_, size().bytes))));
  }
  [[nodiscard]] static Heard hear(Peer& peer, const std::string& subscriber) {
    const std::string answer = peer.ask("recv " + subscriber + ' ' + its_bytes());
    EXPECT_TRUE(is_ok(answer));
    std::istringstream words(answer.substr(std::min<std::size_t>(3, answer.size())));
    Heard heard;
    words >> heard.sequence >> heard.first >> heard.last >> heard.reason;
    return heard;
  }
  /// Expects the samples of a subscriber that was stopped after `before` and continues: those under
  /// way to it, one gap, the history.
  static void expect_one_gap(Peer& peer, const std::string& subscriber, std::uint64_t before,
                             std::uint64_t head) {
    const std::uint64_t got = before + size().under_way;
    for (std::uint64_t sequence = before + 1; sequence <= got; ++sequence)
      EXPECT_EQ(hear(peer, subscriber), Heard{sequence});
    const std::uint64_t kept = head - kHistory + 1;
    EXPECT_EQ(hear(peer, subscriber), (Heard{kept, got + 1, kept - 1, "overflow"}));
    for (std::uint64_t sequence = kept + 1; sequence <= head; ++sequence)
      EXPECT_EQ(hear(peer, subscriber), Heard{sequence});
  }

  // A busy machine may keep a process from its CPU for a second, and over sockets the lease
  // decides.
  static constexpr std::chrono::milliseconds kLease = 3s;
  MemberEventLog members_;
  Context context_ =
      Context::create({.name = "p", .lease = kLease, .publish_bytes = size().publish_bytes})
          .value();
  Node node_ = Node::join(context_,
                          {.domain = "brain",
                           .name = "p",
                           .peers = std::vector<std::string>{},
                           .listen = "127.0.0.1:0"},
                          kPatience)
                   .value();
  std::uint64_t published_ = 0;
};

// The history of a gigabyte and one sample under way: a share of the pool allows no more.
INSTANTIATE_TEST_SUITE_P(Sizes, Fabric,
                         testing::Values(Size{"100KB", 100'000, 0, 16, 100},
                                         Size{"100MB", 100'000'000, std::uint64_t{2} << 30, 1, 11}),
                         testing::PrintToStringParamName());

TEST_P(Fabric, AStoppedProcessKeepsItsWindowAndMissesOneGap) {
  Publisher publisher = Publisher::declare(node_, "frames", {.qos = {keep_last(kHistory)}}).value();
  Peer s(other("s", "shm", node_.address()));
  Peer t(other("t", "tcp", node_.address()));
  ASSERT_TRUE(is_ok(s.ask("subscribe frames s1")));
  ASSERT_TRUE(is_ok(s.ask("subscribe frames s2")));
  ASSERT_TRUE(is_ok(t.ask("subscribe frames t")));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(3, kPatience)));
  publish(publisher, 1);
  EXPECT_EQ(hear(s, "s1"), Heard{1});
  EXPECT_EQ(hear(s, "s2"), Heard{1});
  EXPECT_EQ(hear(t, "t"), Heard{1});
  s.signal(SIGSTOP);
  const std::uint64_t head = 1 + size().published;
  for (std::uint64_t sequence = 2; sequence <= head; ++sequence) {
    publish(publisher, 1);
    EXPECT_EQ(hear(t, "t"), Heard{sequence}) << "one that runs is not disturbed";
  }
  EXPECT_TRUE(members_.wait_for(MemberEventKind::suspect, "s"));
  s.signal(SIGCONT);
  for (const char* subscriber : {"s1", "s2"}) expect_one_gap(s, subscriber, 1, head);
  EXPECT_EQ(publisher.stats().subscribers, 3u);
  EXPECT_EQ(members_.count(MemberEventKind::lost), 0u);
}

TEST_P(Fabric, AStoppedProcessIsWaitedForOnceWithBlock) {
  Publisher publisher =
      Publisher::declare(node_, "frames",
                         {.qos = {.history = keep_last(kHistory), .overflow = Overflow::block}})
          .value();
  Peer s(other("s", "shm", node_.address()));
  Peer t(other("t", "tcp", node_.address()));
  ASSERT_TRUE(is_ok(s.ask("subscribe frames s1")));
  ASSERT_TRUE(is_ok(t.ask("subscribe frames t")));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  const auto publish_until = [&](Deadline deadline) {
    std::string names;
    for (const std::string& name :
         publisher.publish(patterned(++published_, size().bytes), deadline).value().lagging)
      names += name.substr(0, name.find(' ')) + ';';
    return names;
  };
  s.signal(SIGSTOP);
  std::uint64_t sequence = 1;
  for (; sequence <= size().under_way; ++sequence) {
    EXPECT_EQ(publish_until(Deadline::never()), "");
    EXPECT_EQ(hear(t, "t"), Heard{sequence});
  }
  EXPECT_EQ(publish_until(50ms), "s;");
  EXPECT_EQ(hear(t, "t"), Heard{sequence});
  // It would take for ever if it waited for the subscriber that let a deadline pass.
  while (++sequence <= size().published) {
    EXPECT_EQ(publish_until(Deadline::never()), "s;");
    EXPECT_EQ(hear(t, "t"), Heard{sequence}) << "one that runs is not disturbed";
  }
  s.signal(SIGCONT);
  expect_one_gap(s, "s1", 0, size().published);
  EXPECT_EQ(publish_until(Deadline::never()), "");
  EXPECT_EQ(hear(s, "s1"), Heard{size().published + 1});
}

TEST_P(Fabric, AThreadThatStopsHoldsUpNeitherItsProcessNorOthers) {
  Publisher publisher = Publisher::declare(node_, "frames", {.qos = {keep_last(kHistory)}}).value();
  Peer s(other("s", "shm", node_.address()));
  Peer t(other("t", "tcp", node_.address()));
  ASSERT_TRUE(is_ok(s.ask("subscribe frames s1")));  // its thread takes nothing
  ASSERT_TRUE(is_ok(s.ask("subscribe frames s2")));
  ASSERT_TRUE(is_ok(t.ask("subscribe frames t")));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(3, kPatience)));
  for (std::uint64_t sequence = 1; sequence <= size().published; ++sequence) {
    publish(publisher, 1);
    EXPECT_EQ(hear(s, "s2"), Heard{sequence});
    EXPECT_EQ(hear(t, "t"), Heard{sequence});
  }
  expect_one_gap(s, "s1", 0, size().published);
}

TEST_P(Fabric, AProcessThatIsLostByItsLeaseComesBackAndKnowsWhatItMissed) {
  Publisher publisher = Publisher::declare(node_, "frames", {.qos = {keep_last(kHistory)}}).value();
  Peer t(other("t", "tcp", node_.address()));
  ASSERT_TRUE(is_ok(t.ask("subscribe frames t")));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  publish(publisher, 1);
  EXPECT_EQ(hear(t, "t"), Heard{1});
  t.signal(SIGSTOP);
  publish(publisher, size().published / 2);
  ASSERT_TRUE(members_.wait_for(MemberEventKind::lost, "t"));
  EXPECT_TRUE(eventually([&] { return publisher.stats().subscribers == 0; }));
  publish(publisher, size().published / 2);
  const std::uint64_t head = published_;
  t.signal(SIGCONT);
  std::uint64_t next = 2;
  bool reconnected = false;
  while (next <= head) {
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

// On one host a stopped process is known to live, whatever its lease.
TEST_P(Fabric, OnOneHostALeaseEndsNothing) {
  Publisher publisher = Publisher::declare(node_, "frames", {.qos = {keep_last(kHistory)}}).value();
  Peer s(other("s", "shm", node_.address()));
  Peer t(other("t", "tcp", node_.address()));
  ASSERT_TRUE(is_ok(s.ask("subscribe frames s1")));
  ASSERT_TRUE(is_ok(t.ask("subscribe frames t")));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(2, kPatience)));
  s.signal(SIGSTOP);
  ASSERT_TRUE(members_.wait_for(MemberEventKind::suspect, "s"));
  t.signal(SIGSTOP);  // it has the same lease
  publish(publisher, size().published);
  ASSERT_TRUE(members_.wait_for(MemberEventKind::lost, "t"));
  EXPECT_EQ(publisher.stats().subscribers, 1u);
  s.signal(SIGCONT);
  expect_one_gap(s, "s1", 0, size().published);
  EXPECT_EQ(members_.count(MemberEventKind::lost), 1u);
}

TEST_P(Fabric, APublisherThatIsKilledAndStartsAgainIsAnotherIncarnation) {
  Subscriber subscriber = Subscriber::declare(node_, "frames").value();
  const std::uint64_t count = std::min<std::uint64_t>(10, size().under_way);
  std::uint64_t incarnation = 0;
  std::vector<Sample> kept;
  for (int round = 0; round < 2; ++round) {
    Peer p(other("q", "shm", node_.address()));
    ASSERT_TRUE(is_ok(p.ask("publisher frames 1")));
    ASSERT_TRUE(is_ok(p.ask("wait 1")));
    ASSERT_TRUE(is_ok(p.ask("publish " + its_bytes() + ' ' + std::to_string(count))));
    p.kill_and_wait();
    // Everything that was published is here, even after its publisher died.
    for (std::uint64_t sequence = 1; sequence <= count; ++sequence) {
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
    EXPECT_TRUE(is_patterned(*sample.tensors, sample.sequence, size().bytes));
  EXPECT_EQ(subscriber.stats().missed, 0u);
}

TEST_P(Fabric, ASubscriberThatIsKilledGivesItsMemoryBack) {
  Publisher publisher = Publisher::declare(node_, "frames").value();
  // More than the pool holds, if it kept the samples of the dead.
  const std::uint64_t count = 2 * size().under_way + kHistory;
  for (int round = 0; round < 3; ++round) {
    Peer s(other("s", "shm", node_.address()));
    ASSERT_TRUE(is_ok(s.ask("subscribe frames s1")));
    ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
    publish(publisher, count);
    s.kill_and_wait();
    ASSERT_TRUE(eventually([&] { return publisher.stats().subscribers == 0; }));
  }
  publish(publisher, count);
  EXPECT_EQ(publisher.stats().history_trimmed, 0u);
}

/// A program that hangs, and its successor of the same name, started long before the lease ends.
class Successor : public ProcessTest, public testing::WithParamInterface<const char*> {
 protected:
  [[nodiscard]] Peer::Options vision() const {
    return {{"vision", GetParam(), "60000", node_.address()}, {}, "node_main"};
  }
  static void begin(Peer& peer) {
    ASSERT_TRUE(is_ok(peer.ask("publisher count 4")));
    ASSERT_TRUE(is_ok(peer.ask("wait 1")));
  }
  Sample receive() {
    auto sample = subscriber_.recv(kPatience);
    EXPECT_TRUE(succeeds(sample));
    return sample ? *std::move(sample) : Sample{};
  }

  std::mutex mutex_;
  std::vector<std::string> duplicates_;  // outlives the callback that adds to it
  Context context_ = Context::create({.name = "motor", .lease = std::chrono::minutes(1)}).value();
  Node node_ = Node::join(context_,
                          {.domain = "brain",
                           .name = "motor",
                           .peers = std::vector<std::string>{},
                           .listen = "127.0.0.1:0"},
                          kPatience)
                   .value();
  Subscriber subscriber_ =
      Subscriber::declare(node_, "count", {.max_age = std::chrono::minutes(1)}).value();
};
INSTANTIATE_TEST_SUITE_P(Paths, Successor, testing::Values("shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(Successor, IsFollowedWhileItsPredecessorHangsAndWhenItGoesOn) {
  node_.on_event([this](const FabricEvent& event) {
    if (event.kind != FabricEventKind::duplicate_name) return;
    const std::lock_guard lock(mutex_);
    duplicates_.push_back(event.node);
  });
  Peer hung(vision());
  begin(hung);
  ASSERT_TRUE(is_ok(hung.ask("publish 100 2")));
  const Sample first = receive();
  EXPECT_EQ(receive().sequence, 2u);
  hung.signal(SIGSTOP);
  Peer next(vision());
  begin(next);
  ASSERT_TRUE(is_ok(next.ask("publish 100 1")));
  const Sample second = receive();
  EXPECT_EQ(second.sequence, 1u);
  EXPECT_EQ(second.publisher, "vision");
  EXPECT_GT(second.incarnation, first.incarnation);
  EXPECT_TRUE(second.gaps.empty());
  EXPECT_TRUE(eventually([&] {
    const std::lock_guard lock(mutex_);
    return duplicates_ == std::vector<std::string>{"vision"};
  }));
  // The hung program continues as before: nobody acts on its stale command.
  hung.signal(SIGCONT);
  ASSERT_TRUE(is_ok(hung.ask("publish 100 1")));
  ASSERT_TRUE(eventually([&] { return subscriber_.stats().superseded == 1; },
                         [&] { EXPECT_FALSE(subscriber_.recv(0s)); }));
  ASSERT_TRUE(is_ok(next.ask("publish 100 1")));
  EXPECT_EQ(receive().sequence, 2u);
  EXPECT_EQ(subscriber_.stats().missed, 0u);
}

}  // namespace
}  // namespace tendon::test
