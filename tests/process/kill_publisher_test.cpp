// SPDX-License-Identifier: Apache-2.0
// SIGKILL of a publisher at each failpoint between a slot and a ring (docs/protocol.md, "Death,
// failure, fork"), with subscribers in two processes. Each gets all samples up to the last one,
// without a gap, and continues with the next incarnation; nothing is left in the system.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <tendon/fabric/node.hpp>
#include <utility>
#include <vector>

#include "core/failpoint.hpp"
#include "process/peer.hpp"
#include "session/socket_names.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSamples = 6;  // all of them are under way at once
constexpr std::uint64_t kSamplesOfNext = kSamples + 2;

/// The size of all samples: inline in the ring, or in a slot of the publish pool.
struct Death {
  const char* failpoint;
  std::uint64_t size_bytes;
  int first;  ///< passage: the earlier ones are messages of links and nodes
};
std::ostream& operator<<(std::ostream& out, const Death& death) {
  for (const char c : std::string(death.failpoint)) out << (c == '.' ? '_' : c);
  return out << (death.size_bytes > 8192 ? "_in_a_slot" : "_inline");
}

class KillPublisher : public ProcessTest, public testing::WithParamInterface<Death> {
 protected:
  void SetUp() override {
    if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
    ASSERT_TRUE(is_ok(beside_.ask("subscribe frames frames")));
  }
  [[nodiscard]] static std::string size() { return std::to_string(GetParam().size_bytes); }
  /// Waits until it is connected to both subscribers; false when it died before.
  [[nodiscard]] static bool begin(Peer& publisher) {
    return !publisher.ask("publisher frames 1").empty() && !publisher.ask("wait 2").empty();
  }
  [[nodiscard]] Peer::Options publisher(std::map<std::string, std::string> environment) {
    return {{"q", "shm", "60000", node_.address(), value_of(beside_.ask("address"))},
            std::move(environment),
            "node_main"};
  }
  /// Receives the next sample of the subscriber in this process, or of the one beside it, without a
  /// gap.
  [[nodiscard]] std::uint64_t hear_here() {
    const auto sample = subscriber_.recv(kPatience);
    if (!succeeds(sample)) return 0;
    EXPECT_TRUE(is_patterned(*sample->tensors, sample->sequence, GetParam().size_bytes));
    EXPECT_TRUE(sample->gaps.empty());
    return sample->sequence;
  }
  [[nodiscard]] std::uint64_t hear_beside() {
    const std::string heard = value_of(beside_.ask("recv frames " + size()));
    EXPECT_EQ(heard.find(' '), std::string::npos) << "a gap: " << heard;
    return heard.empty() ? 0 : std::stoull(heard);
  }
  void expect_all(std::uint64_t said, std::uint64_t (KillPublisher::*hear)());
  bool dies_at(int passage);

  Context context_ = Context::create({.name = "here", .transport = Transport::shm}).value();
  Node node_ = Node::join(context_,
                          {.domain = "brain",
                           .name = "here",
                           .peers = std::vector<std::string>{},
                           .listen = "127.0.0.1:0"},
                          kPatience)
                   .value();
  Subscriber subscriber_ = Subscriber::declare(node_, "frames").value();
  Peer beside_{{{"beside", "shm", "60000", "listen=127.0.0.1:0"}, {}, "node_main"}};
  std::uint64_t streamed_ = 0;  // samples that arrived from the dead publishers
};

// The dead publisher reported `said` samples; the next one may have arrived too. The successor
// reports all of its own.
void KillPublisher::expect_all(std::uint64_t said, std::uint64_t (KillPublisher::*hear)()) {
  std::vector<std::uint64_t> heard;
  while (heard.size() <= kSamples + kSamplesOfNext &&
         (heard.empty() || heard.back() != kSamplesOfNext)) {
    heard.push_back((this->*hear)());
    ASSERT_NE(heard.back(), 0u);
  }
  const std::uint64_t of_dead = heard.size() - kSamplesOfNext;
  EXPECT_GE(of_dead, said) << "what was published is there";
  EXPECT_LE(of_dead, said + 1);
  std::vector<std::uint64_t> expected;
  for (const std::uint64_t count : {of_dead, kSamplesOfNext})
    for (std::uint64_t sequence = 1; sequence <= count; ++sequence) expected.push_back(sequence);
  std::ranges::sort(heard);  // the two publishers alternate
  std::ranges::sort(expected);
  EXPECT_EQ(heard, expected);
  streamed_ += of_dead;
}

// Lets it die at the n-th passage. Returns false when the publisher never got there, and was
// killed.
bool KillPublisher::dies_at(int passage) {
  const ScratchDir reports;
  const std::filesystem::path report = reports.path() / "passed";
  const Residue before = Residue::now(runtime_folder());
  const std::uint64_t missed_before = subscriber_.stats().missed;
  std::uint64_t said = 0;
  {
    Peer dead(publisher({{"TENDON_FAILPOINTS",
                          std::string(GetParam().failpoint) + "=kill@" + std::to_string(passage)},
                         {"TENDON_FAILPOINT_REPORT", report}}));
    if (begin(dead))
      while (said < kSamples && !dead.ask("publish " + size()).empty()) ++said;
    dead.kill_and_wait();
  }
  {
    Peer next(publisher({}));
    EXPECT_TRUE(begin(next));
    EXPECT_TRUE(is_ok(next.ask("publish " + size() + ' ' + std::to_string(kSamplesOfNext))));
    expect_all(said, &KillPublisher::hear_here);
    expect_all(said, &KillPublisher::hear_beside);
  }
  EXPECT_TRUE(eventually([&] { return subscriber_.stats().publishers == 0; },
                         [&] { (void)subscriber_.recv(0s); }));
  // The head may count a sample whose publish() had not returned, and which no subscriber was
  // shown.
  EXPECT_LE(subscriber_.stats().missed, missed_before + 1);
  const auto left = [&] {
    // The socket of a killed node is removed when the next process starts.
    (void)detail::sweep_leftovers(runtime_folder());
    return same_residue(before, Residue::now(runtime_folder()));
  };
  EXPECT_TRUE(eventually([&] { return bool(left()); })) << left().message();
  return std::filesystem::exists(report);
}

TEST_P(KillPublisher, EachSubscriberHasAllThatWasShown) {
  int passed_count = 0;
  for (int passage = GetParam().first; passage < GetParam().first + 10; ++passage) {
    SCOPED_TRACE(passage);
    passed_count += dies_at(passage) ? 1 : 0;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(streamed_, 0u) << "no run came as far as the stream";
  EXPECT_GT(passed_count, 0) << "no run came to the failpoint";
}

INSTANTIATE_TEST_SUITE_P(CrashTable, KillPublisher,
                         testing::Values(Death{"topic.publish.before_show", 500, 1},
                                         Death{"topic.publish.before_show", 100'000, 1},
                                         Death{"shm.send.before_publish", 500, 10},
                                         Death{"shm.send.before_publish", 100'000, 10},
                                         Death{"shm.send.after_publish", 500, 10},
                                         Death{"shm.send.after_publish", 100'000, 10},
                                         Death{"shm.announce.after_send", 100'000, 1}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace tendon::test
