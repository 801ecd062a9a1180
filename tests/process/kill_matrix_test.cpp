// SPDX-License-Identifier: Apache-2.0
// SIGKILL of either side at each failpoint of docs/protocol.md, "Death, failure, fork". The
// survivor keeps the delivered messages, learns the peer's name and recovers its slots. Nothing is
// left in the system.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "core/failpoint.hpp"
#include "process/peer.hpp"
#include "process/survivor.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSmall = 500;      // inline
constexpr std::uint64_t kLarge = 3 << 20;  // a slot; several pieces of a copy, several frames

enum class Role { sender, receiver };

/// One row of the crash table.
struct Row {
  const char* name;
  Transport transport;
  Role role;              ///< the role of the process that dies
  const char* failpoint;  ///< "": it is killed from outside, while it holds received messages
  /// shm: whether the message is delivered whose sending was interrupted. 0 no, 1 yes, 2 either
  int published;
};

std::ostream& operator<<(std::ostream& out, const Row& row) { return out << row.name; }

class KillMatrix : public ProcessTest, public testing::WithParamInterface<Row> {
 protected:
  void SetUp() override {
    if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  }
  // Lets the victim die at the n-th passage. Returns false when it never got there, and was killed.
  bool dies_at(int passage);
  void survive_a_sender(Survivor& survivor, Peer& victim);
  void survive_a_receiver(Survivor& survivor, Peer& victim);
  std::uint64_t streamed_ = 0;  // messages that were delivered before deaths, in all runs
  bool finished_ = false;  // in this run the whole stream was delivered, and the victim was killed
};

void KillMatrix::survive_a_sender(Survivor& survivor, Peer& victim) {
  Pipe pipe = survivor.listener().accept(kPatience).value();
  const auto link = survivor.link();
  // The victim holds a slot of the survivor when it dies.
  ASSERT_TRUE(succeeds(pipe.send(patterned(55, 60'000), kPatience)));
  victim.tell("recv 55 60000");
  victim.tell("send-many 12 " + std::to_string(kSmall) + " " + std::to_string(kLarge));
  std::vector<TensorDict> received;
  Result<TensorDict> next = pipe.recv(kPatience);
  for (; next && received.size() < 12; next = pipe.recv(received.size() < 12 ? kPatience : 0s))
    received.push_back(*std::move(next));
  // Counts the messages that the victim reported as sent.
  std::uint64_t said = 0;
  for (std::string line = victim.line(); !line.empty(); line = victim.line()) {
    if (line.starts_with("sent ")) ++said;
    if (line == "ok" && said == 12) {
      finished_ = true;
      victim.kill_and_wait();
    }
  }
  for (std::size_t n = 0; n < received.size(); ++n)
    ASSERT_TRUE(is_patterned(received[n], n, n % 2 == 0 ? kLarge : kSmall)) << n;
  streamed_ += received.size();
  if (!next && next.error().code == ErrorCode::timeout) next = pipe.recv(kPatience);
  EXPECT_TRUE(fails_with(next, ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(fails_with(pipe.send(numbered(1), kPatience), ErrorCode::peer_lost, "victim"));
  const Row& row = GetParam();
  if (finished_) {
    EXPECT_EQ(received.size(), 12u);
  } else {
    EXPECT_LE(received.size(), said + 1);
    if (row.transport == Transport::shm) {
      EXPECT_GE(received.size(), said) << "what was published is delivered";
      if (row.published == 0) {
        EXPECT_EQ(received.size(), said) << "what was not is not";
      }
    }
  }
  EXPECT_TRUE(eventually([&] {
    const auto slots = link->stats().slots;
    return slots.sent_count + slots.quarantined_count == 0;
  })) << "slots did not come back";
}

void KillMatrix::survive_a_receiver(Survivor& survivor, Peer& victim) {
  Pipe pipe = survivor.listener().accept(kPatience).value();
  const auto link = survivor.link();
  victim.tell("recv-many " + std::to_string(kSmall) + " " + std::to_string(kLarge));
  Result<void> sent;
  std::uint64_t n = 0;
  for (; sent && n < 40; ++n)
    sent = pipe.send(patterned(n, n % 2 == 0 ? kLarge : kSmall), kPatience);
  finished_ = sent.has_value();
  if (finished_) {
    // The victim was never killed: the test kills it while it holds some.
    victim.kill_and_wait();
    ASSERT_TRUE(eventually([&] {
      sent = pipe.send(numbered(0), kPatience);
      return !sent;
    }));
  }
  EXPECT_TRUE(fails_with(sent, ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
  for (std::string line = victim.line(); !line.empty(); line = victim.line()) {
    EXPECT_FALSE(line.starts_with("error")) << line;
    if (line.starts_with("received ")) ++streamed_;
  }
  EXPECT_TRUE(eventually([&] {
    const auto slots = link->stats().slots;
    return slots.sent_count + slots.quarantined_count == 0;
  })) << "slots did not come back";
}

bool KillMatrix::dies_at(int passage) {
  const Row& row = GetParam();
  finished_ = false;
  // Reports are not in the folder whose files are counted.
  const ScratchDir reports;
  const std::filesystem::path report = reports.path() / "passed";
  std::map<std::string, std::string> environment;
  const std::string_view failpoint = row.failpoint;
  if (!failpoint.empty()) {
    environment["TENDON_FAILPOINTS"] = std::string(failpoint) + "=kill@" + std::to_string(passage);
    environment["TENDON_FAILPOINT_REPORT"] = report;
  }
  const Residue before = Residue::now(runtime_folder());
  {
    Survivor survivor(row.transport);
    Peer victim({{"--name", "victim", "--transport", name_of(row.transport)}, environment});
    const std::string connected = victim.ask("connect " + survivor.address());
    if (connected.empty()) {
      // The victim died while connecting: a pipe may exist or not, but nobody hangs.
      auto early = survivor.listener().accept(200ms);
      if (early) {
        EXPECT_TRUE(fails_with(early->recv(kPatience), ErrorCode::peer_lost, "victim"));
      }
      // The pipe may have arrived since, and would be taken for the next one.
      EXPECT_TRUE(eventually([&] { return survivor.context().members().empty(); }));
      while (survivor.listener().accept(0s)) continue;
    } else {
      EXPECT_TRUE(is_ok(connected));
      if (row.role == Role::sender)
        survive_a_sender(survivor, victim);
      else
        survive_a_receiver(survivor, victim);
    }
    const int status = victim.wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    if (!connected.empty()) {
      EXPECT_TRUE(survivor.sees(MemberEventKind::lost, "victim"));
    }
    survivor.expect_alive(row.transport);
    EXPECT_TRUE(eventually([&] { return survivor.context().members().empty(); }));
  }
  EXPECT_TRUE(same_residue(before, Residue::now(runtime_folder())))
      << row.failpoint << " passage " << passage;
  const bool passed = std::filesystem::exists(report);
  EXPECT_TRUE(passed || finished_) << "the victim died of something else";
  if (passed) {
    std::ifstream file(report);
    const std::string lines(std::istreambuf_iterator<char>(file), {});
    EXPECT_EQ(lines, std::string(failpoint) + "\n");
  }
  return passed;
}

TEST_P(KillMatrix, SurvivorKeepsWhatItHasAndKnowsWho) {
  const std::string_view failpoint = GetParam().failpoint;
  if (failpoint.empty()) {
    dies_at(0);
    EXPECT_TRUE(finished_);
    return;
  }
  int passed_count = 0;
  const auto die_at = [&](int passage) {
    SCOPED_TRACE(std::string(failpoint) + "=kill@" + std::to_string(passage));
    passed_count += dies_at(passage) ? 1 : 0;
  };
  int last = 0;
  for (const int passage : {1, 2, 3, 4, 5, 6, 9, 20}) {
    die_at(last = passage);
    ASSERT_FALSE(HasFailure());
  }
  // A busy machine splits the work before the stream into more pieces.
  while (streamed_ == 0 && last < 2000) {
    die_at(last *= 2);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(streamed_, 0u) << "no run came as far as the stream";
  EXPECT_GT(passed_count, 0) << "no run came to " << failpoint;
  RecordProperty("passed", passed_count);
}

INSTANTIATE_TEST_SUITE_P(
    CrashTable, KillMatrix,
    testing::Values(
        Row{"shm_sender_within_the_copy", Transport::shm, Role::sender, "shm.send.mid_copy", 0},
        Row{"shm_sender_with_a_slot_loaned", Transport::shm, Role::sender, "shm.send.slot_loaned",
            0},
        Row{"shm_sender_with_a_segment_in_flight", Transport::shm, Role::sender,
            "shm.announce.after_send", 0},
        Row{"shm_sender_before_publishing", Transport::shm, Role::sender, "shm.send.before_publish",
            0},
        Row{"shm_sender_after_publishing", Transport::shm, Role::sender, "shm.send.after_publish",
            2},
        Row{"shm_receiver_before_taking", Transport::shm, Role::receiver, "shm.receive.before_take",
            2},
        Row{"shm_receiver_while_holding", Transport::shm, Role::receiver, "", 2},
        Row{"shm_receiver_with_a_segment_in_flight", Transport::shm, Role::receiver,
            "shm.announce.before_attach", 2},
        Row{"shm_receiver_before_publishing_a_return", Transport::shm, Role::receiver,
            "shm.return.before_publish", 2},
        Row{"tcp_sender_before_the_descriptor", Transport::tcp, Role::sender,
            "tcp.send.before_descriptor", 2},
        Row{"tcp_sender_after_the_descriptor", Transport::tcp, Role::sender,
            "tcp.send.after_descriptor", 2},
        Row{"tcp_sender_between_frames", Transport::tcp, Role::sender, "tcp.send.mid_bulk", 2},
        Row{"tcp_receiver_between_frames", Transport::tcp, Role::receiver, "tcp.recv.mid_bulk", 2},
        Row{"tcp_receiver_while_holding", Transport::tcp, Role::receiver, "", 2}),
    [](const auto& row) { return std::string(row.param.name); });

class Death : public PathTest {};
TENDON_ON_BOTH_TRANSPORTS(Death);

TEST_P(Death, WhatWasFlushedIsDeliveredAfterTheSenderDied) {
  // After flush, the peer's Tendon holds the message.
  Survivor survivor(GetParam());
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  for (int n = 0; n < 5; ++n) ASSERT_TRUE(is_ok(peer.ask("send " + std::to_string(n) + " 700000")));
  ASSERT_TRUE(is_ok(peer.ask("flush")));
  peer.kill_and_wait();
  EXPECT_TRUE(survivor.sees(MemberEventKind::lost, "victim"));
  for (std::uint64_t n = 0; n < 5; ++n)
    EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), n, 700'000));
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
}

TEST_P(Death, AnOrderlyEndBeforeItIsAnOrderlyEnd) {
  Survivor survivor(GetParam());
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(is_ok(peer.ask("send 1 100000")));
  ASSERT_TRUE(is_ok(peer.ask("close")));
  peer.kill_and_wait();
  EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 1, 100'000));
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::end_of_stream));
}

TEST_P(Death, ViewsOfItsMessagesStayReadable) {
  Survivor survivor(GetParam());
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(is_ok(peer.ask("send 1 3000000")));
  const TensorDict held = pipe.recv(kPatience).value();
  peer.kill_and_wait();
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(is_patterned(held, 1, 3'000'000));
  fill_pattern(held["x"].mutable_bytes(), 2);
}

TEST_P(Death, ReleasesEveryKindOfWait) {
  Survivor survivor(GetParam(), {.link_cap_bytes = 1 << 20, .pool_cap_bytes = 1 << 20});
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  Completion<TensorDict> receive = pipe.recv_async();
  std::vector<Completion<void>> sends;
  for (std::uint64_t n = 0; n < 300; ++n) sends.push_back(pipe.send_async(patterned(n, 200'000)));
  ASSERT_FALSE(sends.back().done()) << "nothing waits";
  peer.signal(SIGKILL);
  EXPECT_TRUE(fails_with(sends.back().wait(kPatience), ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(fails_with(receive.wait(kPatience), ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(fails_with(pipe.flush(kPatience), ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(
      fails_with(pipe.loan(bytes_schema(200'000), kPatience), ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(fails_with(pipe.close(kPatience), ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
}

TEST_P(Death, OfOneClientLeavesTheOthersAlone) {
  Survivor survivor(GetParam());
  Peer::Options good = victim();
  good.arguments[1] = "good";
  Peer other(good);
  Pipe to_other = survivor.meet(other);
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(is_ok(peer.ask("send 1 100000")));
  peer.kill_and_wait();
  EXPECT_TRUE(survivor.sees(MemberEventKind::lost, "victim"));
  for (std::uint64_t n = 0; n < 10; ++n) {
    ASSERT_TRUE(succeeds(to_other.send(patterned(n, 100'000), kPatience)));
    ASSERT_TRUE(is_ok(other.ask("recv " + std::to_string(n) + " 100000")));
  }
  ASSERT_EQ(survivor.context().members().size(), 1u);
  EXPECT_EQ(survivor.context().members()[0].name, "good");
}

TEST_P(Death, TheKilledListenerIsUnreachable) {
  auto peer = std::make_unique<Peer>(victim());
  const std::string address = value_of(peer->ask("listen"));
  Context context = Context::create({.transport = GetParam()}).value();
  Pipe pipe = Pipe::connect(context, address, kPatience).value();
  peer->kill_and_wait();
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(fails_with(Pipe::connect(context, address, kPatience, {.absent = Absent::fail}),
                         ErrorCode::unreachable, address));
}

}  // namespace
}  // namespace tendon::test
