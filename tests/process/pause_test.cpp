// SPDX-License-Identifier: Apache-2.0
// A stopped process is not dead. Death is proved, never guessed; across hosts the lease decides.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <string>

#include "core/failpoint.hpp"
#include "process/peer.hpp"
#include "process/survivor.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Pause : public ProcessTest {};

TEST_F(Pause, OnOneHostAStoppedPeerIsSuspectThenAliveAndNothingIsReclaimed) {
  Survivor survivor(Transport::shm, {.lease = 500ms});
  Peer peer({{"--name", "victim", "--transport", "shm"}, {}});
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(succeeds(pipe.send(patterned(1, 60'000), kPatience)));
  ASSERT_TRUE(succeeds(pipe.send(patterned(2, 60'000), kPatience)));
  ASSERT_TRUE(is_ok(peer.ask("recv 1 60000")));
  ASSERT_TRUE(is_ok(peer.ask("recv 2 60000")));
  const auto link = survivor.link();
  ASSERT_EQ(link->stats().slots.sent_count, 2u);

  peer.signal(SIGSTOP);
  EXPECT_TRUE(survivor.sees(MemberEventKind::suspect, "victim"));
  // Longer than every lease: the peer is still only silent.
  EXPECT_TRUE(fails_with(pipe.recv(1500ms), ErrorCode::timeout, "victim"));
  EXPECT_EQ(survivor.count(MemberEventKind::lost), 0u);
  EXPECT_EQ(link->stats().slots.sent_count, 2u);
  EXPECT_TRUE(eventually([&] { return link->stats().slots.quarantined_count == 0; }));
  EXPECT_TRUE(succeeds(pipe.send(patterned(3, 60'000), kPatience)));

  peer.signal(SIGCONT);
  EXPECT_TRUE(survivor.sees(MemberEventKind::alive, "victim"));
  EXPECT_TRUE(is_ok(peer.ask("recv 3 60000")));
  EXPECT_TRUE(is_ok(peer.ask("check-held"))) << "its memory was given to somebody else";
  EXPECT_TRUE(is_ok(peer.ask("send 4 60000")));
  EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 4, 60'000));
}

TEST_F(Pause, OnOneHostAStoppedPeerThatIsKilledIsDead) {
  Survivor survivor(Transport::shm);
  Peer peer({{"--name", "victim", "--transport", "shm"}, {}});
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(succeeds(pipe.send(patterned(1, 60'000), kPatience)));
  const auto link = survivor.link();
  peer.signal(SIGSTOP);
  EXPECT_TRUE(fails_with(pipe.recv(kBriefly), ErrorCode::timeout));
  peer.signal(SIGKILL);
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
  // The socket may end before the kernel reports the end of the process: slots are in quarantine
  // until then.
  EXPECT_TRUE(eventually([&] {
    const auto slots = link->stats().slots;
    return slots.sent_count == 0 && slots.quarantined_count == 0;
  }));
}

TEST_F(Pause, OverSocketsTheLeaseDecidesAndTheZombieIsRefused) {
  Survivor survivor(Transport::tcp);
  Peer peer({{"--name", "victim", "--transport", "tcp"}, {}});
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(is_ok(peer.ask("send 1 100")));
  ASSERT_TRUE(is_patterned(pipe.recv(kPatience).value(), 1, 100));
  peer.signal(SIGSTOP);
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "lease"));
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(survivor.sees(MemberEventKind::lost, "victim"));
  peer.signal(SIGCONT);
  // Its later messages reach nobody, and it learns that its pipe is over.
  std::string answer = "ok";
  ASSERT_TRUE(eventually([&] { return answer != "ok"; }, [&] { answer = peer.ask("send 2 100"); }));
  EXPECT_TRUE(is_error(answer, "peer_lost", "survivor"));
  EXPECT_TRUE(is_error(answer, "peer_lost", "nothing ran here for")) << answer;
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
  Pipe again = survivor.meet(peer);
  EXPECT_TRUE(is_ok(peer.ask("send 3 100")));
  EXPECT_TRUE(is_patterned(again.recv(kPatience).value(), 3, 100));
}

TEST_F(Pause, AZombiesLateFramesAreRefused) {
  if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  Survivor survivor(Transport::tcp);
  Peer peer({{"--name", "victim", "--transport", "tcp"},
             {{"TENDON_FAILPOINTS", "tcp.send.mid_bulk=stop@2"}}});
  Pipe pipe = survivor.meet(peer);
  peer.tell("send 1 8000000");  // it stops between two of its frames
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
  peer.signal(SIGCONT);
  EXPECT_TRUE(is_error(peer.line(), "peer_lost", "nothing ran here for"));
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
  Pipe again = survivor.meet(peer);
  EXPECT_TRUE(is_ok(peer.ask("send 3 100")));
  EXPECT_TRUE(is_patterned(again.recv(kPatience).value(), 3, 100))
      << "nothing of the old message came";
}

TEST_F(Pause, APeerThatProgressesManuallyMayBeSilent) {
  for (const Transport transport : {Transport::shm, Transport::tcp}) {
    Survivor survivor(transport, {.lease = 500ms});
    Peer peer(
        {{"--name", "victim", "--transport", name_of(transport), "--progress", "manual"}, {}});
    Pipe pipe = survivor.meet(peer);
    EXPECT_TRUE(fails_with(pipe.recv(1500ms), ErrorCode::timeout)) << "longer than any lease";
    EXPECT_EQ(survivor.count(MemberEventKind::suspect), 0u);
    EXPECT_EQ(survivor.count(MemberEventKind::lost), 0u);
    EXPECT_TRUE(is_ok(peer.ask("send 1 100000")));
    EXPECT_TRUE(is_ok(peer.ask("flush")));
    EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 1, 100'000));
  }
}

std::uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmRSS:") continue;
    std::uint64_t kib = 0;
    status >> kib;
    return kib * 1024;
  }
  return 0;
}

class SlowReader : public PathTest {};
TENDON_ON_BOTH_TRANSPORTS(SlowReader);

TEST_P(SlowReader, IsNamedByTheSendersTimeoutAndMemoryIsBounded) {
  constexpr std::uint64_t kCap = 16 << 20;
  constexpr std::uint64_t kSize = 1 << 20;
  Survivor survivor(GetParam(), {.link_cap_bytes = kCap, .pool_cap_bytes = kCap, .lease = 60s});
  Peer peer(victim({}, {"--link-cap", std::to_string(kCap)}));
  Pipe pipe = survivor.meet(peer);
  const TensorDict batch = patterned(1, kSize);
  [[maybe_unused]] const std::uint64_t before = resident_bytes();
  peer.signal(SIGSTOP);
  int sent = 0;
  int failed = 0;
  while (failed < 20) {
    ASSERT_LT(sent, 1000) << "never noticed";
    const auto result = pipe.send(batch, kBriefly);
    if (result) {
      ++sent;
      continue;
    }
    ++failed;
    ASSERT_NE(result.error().detail.find("victim"), std::string::npos) << result.error().message();
    ASSERT_TRUE(result.error().code == ErrorCode::timeout ||
                result.error().code == ErrorCode::resource_exhausted)
        << result.error().message();
  }
#if !defined(__SANITIZE_THREAD__)  // whose shadow memory is resident too
  EXPECT_LE(resident_bytes(), before + 2 * kCap) << sent << " messages were taken";
#endif
  peer.signal(SIGCONT);
  for (int n = 0; n < sent; ++n)
    ASSERT_TRUE(is_ok(peer.ask("recv 1 " + std::to_string(kSize)))) << n;
  ASSERT_TRUE(succeeds(pipe.send(patterned(2, 100), kPatience)));
  EXPECT_TRUE(is_ok(peer.ask("recv 2 100"))) << "none of those that timed out may come";
}

}  // namespace
}  // namespace tendon::test
