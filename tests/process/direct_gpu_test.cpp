// SPDX-License-Identifier: Apache-2.0
// Tensors that stay on their GPU between two processes, on the double of the driver: SIGKILL of
// either side at each failpoint of that path, with and without a forked child that lives on; a
// stopped process; a slow stream. It is the table "Death" of docs/protocol.md, "GPUs".
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "core/failpoint.hpp"
#include "process/gpu_peer.hpp"
#include "support/child.hpp"

namespace tendon::test {
namespace {

// The slots have two sizes, so that the second message announces a segment too.
constexpr std::uint64_t kFirst = 100'000;
constexpr std::uint64_t kSecond = 3'000'000;

constexpr Transport kDirect = Transport::shm;

Environment dies_at(const std::string& failpoint, int passage) {
  if (failpoint.empty()) return {};
  return {{"TENDON_FAILPOINTS", failpoint + "=kill@" + std::to_string(passage)}};
}

/// The pid of a child that `victim` has forked, and that lives on.
pid_t survivor_of(GpuPeer& victim, const std::string& kind = "") {
  return static_cast<pid_t>(std::stol(value_of(victim.ask("survivor " + kind))));
}

/// Writes now the words that the dead process could have written.
void write_words(GpuPeer& dead, pid_t survivor) {
  ASSERT_EQ(kill(survivor, SIGUSR1), 0) << "it lives on";
  EXPECT_EQ(dead.line(), "written");
}

/// Expects that another process is served as usual.
void expect_next_sender(GpuPeer& receiver) {
  GpuPeer next("next", kDirect);
  connect(next, receiver);
  ASSERT_TRUE(is_ok(next.prepare(9, kSecond, "cuda:0")));
  ASSERT_TRUE(is_ok(next.send()));
  EXPECT_EQ(receiver.receive(9, kSecond, "there"), "ok cuda:0");
  EXPECT_EQ(next.stat("copies_d2d"), 1u);
}
void expect_next_receiver(GpuPeer& sender) {
  GpuPeer next("next", kDirect);
  connect(sender, next);
  ASSERT_TRUE(is_ok(next.ask("use 0")));
  ASSERT_TRUE(is_ok(sender.prepare(9, kSecond, "cuda:0")));
  ASSERT_TRUE(is_ok(sender.send()));
  EXPECT_EQ(next.receive(9, kSecond, "there"), "ok cuda:0");
  EXPECT_EQ(sender.stat("copies_d2d"), 1u);
  EXPECT_TRUE(is_ok(next.ask("release")));
}

/// Where a process dies, and whether a child of it lives on.
struct Row {
  const char* name;
  const char* failpoint;  ///< "": it is killed from outside
  int passage;
  bool has_survivor = false;
  std::uint64_t incomplete = 0;  ///< messages that the receiver counts as incomplete
};
std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }
std::string row_name(const testing::TestParamInfo<Row>& info) { return info.param.name; }

class OnRows : public ProcessTest, public testing::WithParamInterface<Row> {
 protected:
  void SetUp() override {
    if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  }
};

// The sender dies

class DirectSenderDies : public OnRows {};

TEST_P(DirectSenderDies, WhatIsWholeIsDeliveredAndNothingElse) {
  const Row& row = GetParam();
  GpuPeer victim("victim", kDirect, dies_at(row.failpoint, row.passage));
  GpuPeer receiver("receiver", kDirect);
  connect(victim, receiver);
  ASSERT_TRUE(is_ok(receiver.ask("use 0")));
  ASSERT_TRUE(is_ok(victim.prepare(1, kFirst, "cuda:0")));
  const bool has_first = row.passage > 1;
  pid_t survivor = 0;
  if (has_first) {
    ASSERT_TRUE(is_ok(victim.send()));
    EXPECT_EQ(victim.stat("copies_d2d"), 1u);
    ASSERT_TRUE(is_ok(victim.ask("flush"))) << "its word is there";
  }
  if (row.has_survivor) survivor = survivor_of(victim);
  if (has_first) {
    ASSERT_TRUE(is_ok(victim.prepare(2, kSecond, "cuda:0")));
  }
  if (*row.failpoint == '\0') {
    ASSERT_TRUE(is_ok(victim.ask("gate")));
    ASSERT_TRUE(is_ok(victim.send())) << "it does not wait for the GPU";
    victim.kill_and_wait();
  } else {
    victim.begin_send();
  }
  EXPECT_TRUE(killed_by(victim.wait(), SIGKILL));
  ASSERT_TRUE(is_ok(receiver.ask("alone"))) << "the end is seen, also where a child lives on";
  if (row.has_survivor) write_words(victim, survivor);
  if (has_first) {
    EXPECT_EQ(receiver.receive(1, kFirst, "there"), "ok cuda:0");
  }
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(is_error(receiver.receive(2, kSecond, "there"), "peer_lost", "victim"));
  EXPECT_EQ(receiver.stat("incomplete"), row.incomplete);
  expect_next_sender(receiver);
}

INSTANTIATE_TEST_SUITE_P(
    Death, DirectSenderDies,
    testing::Values(
        Row{"as_its_first_segment_is_passed", "shm.device.announced", 1},
        Row{"as_its_first_segment_is_passed_and_a_child_lives", "shm.device.announced", 1, true},
        Row{"as_another_segment_is_passed", "shm.device.announced", 2},
        Row{"as_another_segment_is_passed_and_a_child_lives", "shm.device.announced", 2, true},
        Row{"with_a_slot_filled", "pipe.gpu.filled", 2},
        Row{"with_a_slot_filled_and_a_child_lives", "pipe.gpu.filled", 2, true},
        Row{"before_its_word", "pipe.gpu.shown", 2, false, 1},
        Row{"before_its_word_and_a_child_lives", "pipe.gpu.shown", 2, true, 1},
        Row{"while_its_gpu_copies", "", 2, false, 1},
        Row{"while_its_gpu_copies_and_a_child_lives", "", 2, true, 1}),
    row_name);

// The receiver dies

class DirectReceiverDies : public OnRows {};

TEST_P(DirectReceiverDies, TheSlotsReturnAndTheSenderGoesOn) {
  const Row& row = GetParam();
  GpuPeer sender("sender", kDirect);
  GpuPeer victim("victim", kDirect, dies_at(row.failpoint, row.passage));
  connect(sender, victim);
  ASSERT_TRUE(is_ok(victim.ask("use 0")));
  pid_t survivor = 0;
  if (row.has_survivor) survivor = survivor_of(victim, "quiet");
  std::string sent = "ok";
  const std::uint64_t most = 20;
  for (std::uint64_t seed = 1; seed <= most && is_ok(sent); ++seed) {
    const std::uint64_t size = seed % 2 == 1 ? kFirst : kSecond;
    ASSERT_TRUE(is_ok(sender.prepare(seed, size, "cuda:0")));
    sent = sender.send();
    // A victim that is killed from outside holds one batch, and another is on its way.
    const bool is_to_die = *row.failpoint == '\0';
    if (is_to_die && seed == 2) victim.kill_and_wait();
    const std::string received = victim.receive(seed, size, "there");
    EXPECT_TRUE(received.empty() || received == "ok cuda:0") << received;
    if (!is_to_die) (void)victim.ask("release");
  }
  EXPECT_TRUE(killed_by(victim.wait(), SIGKILL));
  EXPECT_TRUE(is_error(sent, "peer_lost", "victim"));
  EXPECT_TRUE(is_error(sender.send(), "peer_lost", "victim"));
  EXPECT_TRUE(is_ok(sender.ask("returned")));
  if (row.has_survivor) {
    EXPECT_EQ(kill(survivor, SIGUSR1), 0) << "it lives on";
  }
  expect_next_receiver(sender);
  EXPECT_TRUE(is_ok(sender.ask("returned")));
  sender.tell("exit");
  EXPECT_TRUE(exited_with(sender.wait(), 0));
}

INSTANTIATE_TEST_SUITE_P(
    Death, DirectReceiverDies,
    testing::Values(
        Row{"before_it_maps_the_first_segment", "shm.device.before_import", 1},
        Row{"before_it_maps_the_first_and_a_child_lives", "shm.device.before_import", 1, true},
        Row{"before_it_maps_another_segment", "shm.device.before_import", 2},
        Row{"before_it_takes_a_message", "shm.receive.before_take", 4},
        Row{"before_it_returns_a_slot", "shm.return.before_publish", 2},
        Row{"before_it_returns_a_slot_and_a_child_lives", "shm.return.before_publish", 2, true},
        Row{"while_it_holds_batches", "", 0},
        Row{"while_it_holds_batches_and_a_child_lives", "", 0, true}),
    row_name);

// A stopped process, and a stream that waits

class DirectGpuProcesses : public ProcessTest {
 protected:
  void start(const Environment& environment = {}, const std::vector<std::string>& more = {}) {
    sender_.emplace("sender", kDirect, environment, more);
    receiver_.emplace("receiver", kDirect);
    connect(*sender_, *receiver_);
    ASSERT_TRUE(is_ok(receiver_->ask("use 0")));
    ASSERT_TRUE(is_ok(sender_->prepare(1, kFirst, "cuda:0")));
    ASSERT_TRUE(is_ok(sender_->send()));
    ASSERT_EQ(receiver_->receive(1, kFirst, "there"), "ok cuda:0");
    ASSERT_TRUE(is_ok(sender_->prepare(2, kSecond, "cuda:0")));
  }
  /// The GPU makes message 2 when the gate opens.
  void send_behind_gate() {
    ASSERT_TRUE(is_ok(sender_->ask("gate")));
    ASSERT_TRUE(is_ok(sender_->send()));
  }
  [[nodiscard]] std::string receive(const std::string& milliseconds = "") {
    return receiver_->receive(2, kSecond, "there", milliseconds);
  }
  std::optional<GpuPeer> sender_;
  std::optional<GpuPeer> receiver_;
};

TEST_F(DirectGpuProcesses, AMessageOfAStoppedSenderArrivesWhenItGoesOn) {
  if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  start({{"TENDON_FAILPOINTS", "pipe.gpu.shown=stop@2"}});
  sender_->begin_send();
  sender_->wait_until_stopped();
  EXPECT_TRUE(is_error(receive("20"), "timeout", "GPU"));
  EXPECT_TRUE(is_error(receive("0"), "timeout"));
  sender_->signal(SIGCONT);
  EXPECT_TRUE(is_ok(sender_->line()));
  EXPECT_EQ(receive(), "ok cuda:0");
  EXPECT_EQ(receiver_->stat("incomplete"), 0u);
}

TEST_F(DirectGpuProcesses, CloseWaitsForWhatTheGpuCopies) {
  start();
  send_behind_gate();
  EXPECT_TRUE(is_error(sender_->ask("close 0"), "timeout"));
  sender_->tell("close");
  EXPECT_TRUE(is_error(receive("10"), "timeout"));
  sender_->open_gate();
  EXPECT_EQ(receive(), "ok cuda:0");
  EXPECT_TRUE(is_ok(sender_->line()));
  EXPECT_TRUE(is_error(receive(), "end_of_stream"));
}

TEST_F(DirectGpuProcesses, AnExitLingersForWhatTheGpuCopies) {
  start({}, {"--linger-ms", "60000"});
  send_behind_gate();
  sender_->tell("exit");
  EXPECT_TRUE(is_error(receive("10"), "timeout"));
  sender_->open_gate();
  EXPECT_EQ(receive(), "ok cuda:0");
  EXPECT_TRUE(is_error(receive(), "end_of_stream"));
  EXPECT_TRUE(exited_with(sender_->wait(), 0));
}

TEST_F(DirectGpuProcesses, ALostGpuCostsTheMessageThatItHadAndNoOther) {
  start();
  send_behind_gate();
  ASSERT_TRUE(is_ok(sender_->ask("lose 0")));
  ASSERT_TRUE(is_ok(sender_->prepare(3, kSecond, "cpu")));
  ASSERT_TRUE(is_ok(sender_->send()));
  EXPECT_EQ(receiver_->receive(3, kSecond, "there"), "ok cpu");
  EXPECT_EQ(receiver_->stat("incomplete"), 1u);
  sender_->open_gate();
  sender_->tell("exit");
  EXPECT_TRUE(exited_with(sender_->wait(), 0));
}

TEST_F(DirectGpuProcesses, ASampleOnALostGpuIsLostAndNoOther) {
  GpuPeer publisher("camera", kDirect);
  GpuPeer subscriber("planner", kDirect);
  subscribe(publisher, subscriber);
  ASSERT_TRUE(is_ok(subscriber.ask("use 0")));
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    ASSERT_TRUE(is_ok(publisher.prepare(seed, kFirst, seed == 3 ? "cpu" : "cuda:0")));
    ASSERT_TRUE(is_ok(publisher.ask("publish")));
    if (seed == 1) {
      EXPECT_EQ(subscriber.take(1, kFirst, "there"), "ok cuda:0");
    }
  }
  ASSERT_TRUE(is_ok(subscriber.ask("lose 0")));
  EXPECT_TRUE(is_error(subscriber.take(2, kFirst, "there"), "device_lost", "cuda:0"));
  EXPECT_EQ(subscriber.take(3, kFirst, "there"), "ok cpu");
  subscriber.tell("exit");
  EXPECT_TRUE(exited_with(subscriber.wait(), 0));
}

}  // namespace
}  // namespace tendon::test
