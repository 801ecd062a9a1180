// SPDX-License-Identifier: Apache-2.0
// SIGKILL of a publisher whose reader is behind. The reader learns how many samples it will never
// get, and the dead process's own count confirms the number. TENDON_TEST_LONG runs many rounds, and
// prints how long the end took.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "process/mapped_record.hpp"
#include "process/peer.hpp"
#include "process/stream_ledger.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using Time = std::chrono::steady_clock::time_point;

bool is_long() { return std::getenv("TENDON_TEST_LONG") != nullptr; }

/// The events `ended` of a round.
struct Told {
  std::atomic<Time> at{};
  std::atomic<int> count = 0;
};

/// A reader in this process, and publishers that are killed one after the other.
class EndOfAPublisher : public ProcessTest {
 protected:
  void join(Transport transport) {
    context_.emplace(
        Context::create({.name = "here", .transport = transport, .lease = 500ms}).value());
    node_.emplace(Node::join(*context_,
                             {.domain = "soak",
                              .name = "here",
                              .peers = std::vector<std::string>{},
                              .listen = "127.0.0.1:0"},
                             kPatience)
                      .value());
    std::cout << "seed " << seed_ << "\n";
  }
  void kill_one(const std::string& transport);
  void print_times() {
    if (!is_long()) return;
    std::ranges::sort(took_ms_);
    std::cout << took_ms_.size() << " ends; from kill to event: p50 "
              << took_ms_[took_ms_.size() / 2] << " ms, p99 "
              << took_ms_[took_ms_.size() * 99 / 100] << " ms\n";
  }

  const std::uint64_t seed_ = std::random_device{}();
  std::mt19937_64 random_{seed_};
  ScratchDir scratch_;
  std::optional<Context> context_;
  std::optional<Node> node_;
  std::vector<double> took_ms_;
  std::optional<tendon::Ended> end_;  // of this round
  std::uint64_t returned_ = 0;
  std::uint64_t started_ = 0;
  std::uint64_t accounted_ = 0;  // delivered and in gaps, from the first sample on
  std::uint64_t first_ = 0;
};

void EndOfAPublisher::kill_one(const std::string& transport) {
  const auto path = scratch_.path() / ("record" + std::to_string(took_ms_.size()));
  const MappedRecord<PublisherRecord> record(path);
  std::string wrong;
  StreamLedger ledger(StreamLedger::Holes::none,
                      [&](const std::string& what) { wrong += what + "; "; });
  const auto told = std::make_shared<Told>();
  Subscriber reader = Subscriber::declare(*node_, "frames", {.ends = true}).value();
  reader.on_event([told](const FabricEvent& event) {
    if (event.kind != FabricEventKind::ended) return;
    told->at = event.when;
    ++told->count;
  });
  Peer publisher({{"publish", "q", path, "topic=frames,small,drop,600", "wait=1", "lease=500",
                   "transport=" + transport, "peer=" + node_->address()},
                  {},
                  "stream_main"});
  const auto& life = record->lives[1];
  first_ = 0;
  end_.reset();
  const auto take = [&] {
    const auto sample = reader.recv(kPatience);
    ASSERT_TRUE(succeeds(sample));
    ledger.on_sample(*sample);
    if (first_ == 0) first_ = sample->gaps.empty() ? sample->sequence : sample->gaps.front().first;
    if (sample->ended) end_ = sample->ended;
  };
  const std::uint64_t read_count = 1 + random_() % 50;
  for (std::uint64_t n = 0; n < read_count && !end_; ++n) ASSERT_NO_FATAL_FAILURE(take());
  const std::uint64_t until = life.returned + random_() % 501;
  ASSERT_TRUE(eventually([&] { return life.returned >= until; }));
  const Time killed_at = std::chrono::steady_clock::now();
  publisher.kill_and_wait();
  while (!end_) ASSERT_NO_FATAL_FAILURE(take());
  ASSERT_TRUE(eventually([&] { return told->count != 0; }));
  const std::chrono::duration<double, std::milli> took = told->at.load() - killed_at;
  took_ms_.push_back(took.count());
  reader.close();
  EXPECT_EQ(told->count, 1);
  EXPECT_EQ(wrong, "");
  started_ = life.started;
  returned_ = life.returned;
  accounted_ = ledger.received() + ledger.missing();
}

TEST_F(EndOfAPublisher, OnOneHostIsExact) {
  join(Transport::shm);
  const int rounds = is_long() ? 1000 : 20;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    kill_one("shm");
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(end_->reason, EndReason::died);
    EXPECT_TRUE(end_->exact);
    EXPECT_TRUE(end_->last_published == returned_ || end_->last_published == started_)
        << *end_ << ", not " << returned_;
    EXPECT_EQ(accounted_, end_->last_published - first_ + 1);
  }
  print_times();
}

TEST_F(EndOfAPublisher, OverSocketsIsWhatIsKnownAfterTheLease) {
  join(Transport::tcp);
  const int rounds = is_long() ? 100 : 3;
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    kill_one("tcp");
    ASSERT_FALSE(HasFatalFailure());
    EXPECT_EQ(end_->reason, EndReason::lost);
    EXPECT_FALSE(end_->exact);
    EXPECT_LE(end_->last_published, started_);
    EXPECT_GE(end_->last_published, end_->last_seen);
    EXPECT_EQ(accounted_, end_->last_published - first_ + 1);
  }
  print_times();
}

}  // namespace
}  // namespace tendon::test
