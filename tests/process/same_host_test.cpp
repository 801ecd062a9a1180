// SPDX-License-Identifier: Apache-2.0
// docs/protocol.md, "Finding a peer on the same host" and "Step by step": the same host is proved,
// never believed; profile `local` needs that proof.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

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
    const std::string refused = peer.ask("connect " + local.address() + " local");
    EXPECT_TRUE(is_error(refused, "permission_denied", reason));
    // The remedy is another profile only where another user is meant.
    const bool is_other_user = reason == "user";
    EXPECT_EQ(refused.find("'plaintext'") != std::string::npos, is_other_user) << refused;
    EXPECT_EQ(refused.find("TENDON_RUNTIME_DIR") != std::string::npos, !is_other_user) << refused;
    Listener plain =
        Listener::bind(context, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
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
  Peer peer({{"--name", "peer"}, {{"TENDON_RUNTIME_DIR", elsewhere}}});
  expect_no_proof(peer, "same host failed");
}

TEST_F(SameHost, AnotherUserIsNoProof) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Peer peer({{"--name", "peer", "--uid", "65534"}, {{"TENDON_RUNTIME_DIR", ""}}});
  expect_no_proof(peer, "user");
}

TEST_F(SameHost, AUnixSocketServesOneUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  Context context = Context::create({}).value();
  const std::string name = "unix:@tendon-test-" + std::to_string(getpid());
  Listener listener = Listener::bind(context, name).value();
  Peer stranger({{"--uid", "65534"}, {{"TENDON_RUNTIME_DIR", ""}}});
  EXPECT_TRUE(is_error(stranger.ask("connect " + name), "permission_denied", "uid"));
  Peer same({{"--name", "same"}, {}});
  EXPECT_TRUE(value_of(same.ask("connect " + name)).starts_with("shm: "));
  EXPECT_TRUE(is_error(stranger.ask("connect " + name), "permission_denied"));
}

// The kernel has confirmed the same user on this host: that is enough for 'local'.
TEST_F(SameHost, AUnixSocketWithoutARendezvousIsTheWayItself) {
  const std::string elsewhere = runtime_folder() + "/elsewhere";
  ASSERT_EQ(mkdir(elsewhere.c_str(), 0700), 0);
  Context context = Context::create({}).value();
  const std::string name = "unix:@tendon-test-" + std::to_string(getpid());
  Listener listener = Listener::bind(context, name).value();
  Peer peer({{"--name", "peer"}, {{"TENDON_RUNTIME_DIR", elsewhere}}});
  const std::string path = value_of(peer.ask("connect " + name));
  EXPECT_TRUE(path.starts_with("tcp: ")) << path;
  EXPECT_NE(path.find("same host failed"), std::string::npos) << path;
  Pipe pipe = listener.accept(kPatience).value();
  ASSERT_TRUE(is_ok(peer.ask("send 1 100000")));
  EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 1, 100'000));
}

TEST_F(SameHost, ARuntimeDirectoryOfOthersIsNotUsed) {
  // Group-writable or a symlink: another user could plant a rendezvous there.
  const std::string loose = runtime_folder() + "/loose";
  ASSERT_EQ(mkdir(loose.c_str(), 0700), 0);
  ASSERT_EQ(chmod(loose.c_str(), 0777), 0);
  Peer peer({{"--name", "peer"}, {{"TENDON_RUNTIME_DIR", loose}}});
  Survivor survivor(Transport::automatic);
  EXPECT_TRUE(is_error(peer.ask("connect " + survivor.address()), "permission_denied"));
}

// Both ends look into this directory, which another user may have made. Neither writes there, and
// both say what is wrong with it.
TEST_F(SameHost, ARuntimeDirectoryThatIsNotOursAloneIsNeverUsed) {
  const std::string directory = runtime_folder() + "/directory";
  const std::string elsewhere = runtime_folder() + "/elsewhere";
  ASSERT_EQ(mkdir(elsewhere.c_str(), 0700), 0);
  ASSERT_EQ(setenv("TENDON_RUNTIME_DIR", directory.c_str(), 1), 0);
  const auto made = [&](mode_t mode) {
    return mkdir(directory.c_str(), 0700) == 0 && chmod(directory.c_str(), mode) == 0;
  };
  struct Case {
    const char* reason;
    std::function<bool()> make;
  };
  std::vector<Case> cases = {
      {"symbolic link", [&] { return symlink(elsewhere.c_str(), directory.c_str()) == 0; }},
      {"mode 0770", [&] { return made(0770); }},
      {"mode 1777", [&] { return made(01777); }},
      {"no directory", [&] { return mkfifo(directory.c_str(), 0600) == 0; }}};
  if (geteuid() == 0) {
    cases.push_back({"belongs to uid 65534",
                     [&] { return made(0700) && chown(directory.c_str(), 65534, 65534) == 0; }});
  }
  for (const Case& one : cases) {
    SCOPED_TRACE(one.reason);
    ASSERT_TRUE(one.make());
    Peer peer({{"--name", "peer"}, {}});
    expect_no_proof(peer, one.reason);
    if (std::filesystem::is_directory(directory)) {
      EXPECT_TRUE(std::filesystem::is_empty(directory));
    }
    EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
    std::filesystem::remove(directory);
  }
}

// The listener's directory is in order; the connector's path to it is not.
TEST_F(SameHost, AConnectorFollowsNoLinkToTheRendezvous) {
  const std::string link = runtime_folder() + "/link";
  ASSERT_EQ(symlink(runtime_folder().c_str(), link.c_str()), 0);
  Peer peer({{"--name", "peer"}, {{"TENDON_RUNTIME_DIR", link}}});
  expect_no_proof(peer, "symbolic link");
}

// A user without TENDON_RUNTIME_DIR, whose directory in /tmp another user has made before.
TEST_F(SameHost, ADirectoryInTmpThatAnotherUserHasMadeIsNeverUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string uid = std::to_string(61000 + getpid() % 4000);
  const std::string directory = "/tmp/tendon-" + uid;
  const Peer::Options victim{{"--name", "victim", "--uid", uid}, {{"TENDON_RUNTIME_DIR", ""}}};
  ASSERT_EQ(mkdir(directory.c_str(), 0777), 0) << "somebody has that uid";
  ASSERT_EQ(chmod(directory.c_str(), 0777), 0);
  {
    Peer listener(victim);
    Peer connector(victim);
    const std::string local = value_of(listener.ask("listen 127.0.0.1:0 local"));
    const std::string refused = connector.ask("connect " + local + " local");
    EXPECT_TRUE(is_error(refused, "permission_denied", "belongs to uid 0")) << refused;
    const std::string plain = value_of(listener.ask("listen 127.0.0.1:0 plaintext"));
    const std::string path = value_of(connector.ask("connect " + plain + " plaintext"));
    EXPECT_TRUE(path.starts_with("tcp: ")) << path;
    EXPECT_NE(path.find("belongs to uid 0"), std::string::npos) << path;
    ASSERT_TRUE(is_ok(listener.ask("accept")));
    EXPECT_NE(value_of(listener.ask("path")).find("belongs to uid 0"), std::string::npos);
    EXPECT_TRUE(std::filesystem::is_empty(directory));
  }
  EXPECT_TRUE(std::filesystem::remove(directory));
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
    // The kill is not in the middle of the handshake, whose leftovers only the next start removes.
    ASSERT_TRUE(eventually([&] { return Residue::now(runtime_folder()).files == before.files; }));
    peer.kill_and_wait();
  }
  EXPECT_TRUE(same_residue(before, Residue::now(runtime_folder())));
}

}  // namespace
}  // namespace tendon::test
