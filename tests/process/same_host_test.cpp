// SPDX-License-Identifier: Apache-2.0
// SEMANTICS 4: same host is proved, never believed; profile `local` needs that proof.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "process/peer.hpp"
#include "process/survivor.hpp"

namespace tendon::test {
namespace {

class SameHost : public ProcessTest {
 protected:
  static Survivor listening() { return Survivor(Transport::automatic); }
  /// Tries both profiles against a listener that grants plaintext.
  static void expect_no_proof(Peer& peer, std::string_view reason) {
    Context context = Context::create({.name = "survivor"}).value();
    Listener local = Listener::bind(context, "127.0.0.1:0").value();
    EXPECT_TRUE(
        is_error(peer.ask("connect " + local.address() + " local"), "permission_denied", reason));
    Listener plain =
        Listener::bind(context, "127.0.0.1:0", {.profile = Profile::plaintext}).value();
    const std::string path = value_of(peer.ask("connect " + plain.address() + " plaintext"));
    EXPECT_TRUE(path.starts_with("tcp: ")) << path;
    EXPECT_NE(path.find(reason), std::string::npos) << path;
    Pipe pipe = plain.accept(kPatience).value();
    ASSERT_TRUE(is_ok(peer.ask("send 1 100000")));
    EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 1, 100'000));
    EXPECT_EQ(pipe.path().kind, PathKind::tcp);
  }
};

TEST_F(SameHost, IsProvedBetweenTwoProcessesOfOneUser) {
  Survivor survivor(Transport::automatic);
  Peer peer({{"--name", "peer"}, {}});
  EXPECT_TRUE(value_of(peer.ask("connect " + survivor.address())).starts_with("shm: "));
}

TEST_F(SameHost, AnotherRuntimeDirectoryIsNoProof) {
  const std::string elsewhere = runtime_folder() + "/elsewhere";
  ASSERT_EQ(mkdir(elsewhere.c_str(), 0700), 0);
  Peer peer({{"--name", "peer"}, {{"XDG_RUNTIME_DIR", elsewhere}}});
  expect_no_proof(peer, "same host failed");
}

TEST_F(SameHost, AnotherUserIsNoProof) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Peer peer({{"--name", "peer", "--uid", "65534"}, {{"XDG_RUNTIME_DIR", "/tmp/tendon-test-none"}}});
  expect_no_proof(peer, "user");
}

TEST_F(SameHost, AUnixSocketServesOneUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Context context = Context::create({}).value();
  const std::string name = "unix:@tendon-test-" + std::to_string(getpid());
  Listener listener = Listener::bind(context, name).value();
  Peer stranger({{"--uid", "65534"}, {{"XDG_RUNTIME_DIR", "/tmp/tendon-test-none"}}});
  EXPECT_TRUE(is_error(stranger.ask("connect " + name), "permission_denied", "uid"));
  Peer same({{"--name", "same"}, {}});
  EXPECT_TRUE(value_of(same.ask("connect " + name)).starts_with("shm: "));
  EXPECT_TRUE(is_error(stranger.ask("connect " + name), "permission_denied"));
}

TEST_F(SameHost, ARuntimeDirectoryOfOthersIsNotUsed) {
  // Group-writable or a symlink: somebody else could plant a rendezvous there.
  const std::string loose = runtime_folder() + "/loose";
  ASSERT_EQ(mkdir(loose.c_str(), 0700), 0);
  ASSERT_EQ(mkdir((loose + "/tendon").c_str(), 0700), 0);
  ASSERT_EQ(chmod((loose + "/tendon").c_str(), 0777), 0);
  Peer peer({{"--name", "peer"}, {{"XDG_RUNTIME_DIR", loose}}});
  Survivor survivor(Transport::automatic);
  EXPECT_TRUE(is_error(peer.ask("connect " + survivor.address()), "permission_denied"));
}

TEST_F(SameHost, TcpOnRequestStillNeedsTheProofForLocal) {
  Survivor survivor(Transport::tcp);
  Peer peer({{"--name", "peer", "--transport", "tcp"}, {}});
  EXPECT_TRUE(value_of(peer.ask("connect " + survivor.address())).starts_with("tcp: "));
}

TEST_F(SameHost, NothingIsLeftInTheRuntimeDirectory) {
  const Residue before = Residue::now(runtime_folder());
  {
    Survivor survivor(Transport::shm);
    Peer peer({{"--name", "peer", "--transport", "shm"}, {}});
    Pipe pipe = survivor.meet(peer);
    const std::string address = value_of(peer.ask("listen"));
    Pipe back = Pipe::connect(survivor.context(), address, kPatience).value();
    peer.kill_and_wait();  // it leaves its rendezvous behind
  }
  { Survivor next(Transport::shm); }  // which the next one sweeps
  EXPECT_TRUE(same_residue(before, Residue::now(runtime_folder())));
}

}  // namespace
}  // namespace tendon::test
