// SPDX-License-Identifier: Apache-2.0
#include "support/member_events.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>

#include "support/batches.hpp"
#include "support/log_lines.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_client.hpp"

namespace tendon::test {
namespace {

class MemberEvents : public PipeTest {};
TENDON_ON_BOTH_PATHS(MemberEvents);

TEST_P(MemberEvents, JoinedAndLeftAtBothEnds) {
  MemberEventLog seen_by_client;
  MemberEventLog seen_by_server;
  std::optional<Context> client =
      Context::create({.name = "alpha", .transport = way().transport}).value();
  Context server = Context::create({.name = "omega", .transport = way().transport}).value();
  seen_by_client.watch(*client);
  seen_by_server.watch(server);
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  Pipe pipe = Pipe::connect(*client, listener.address(), kPatience).value();
  EXPECT_TRUE(seen_by_client.wait_for(MemberEventKind::joined, "omega"));
  EXPECT_TRUE(seen_by_server.wait_for(MemberEventKind::joined, "alpha"));
  ASSERT_EQ(server.members().size(), 1u);
  EXPECT_EQ(server.members()[0].name, "alpha");
  EXPECT_EQ(server.members()[0].context, client->id());
  const ContextId alpha = client->id();
  EXPECT_TRUE(seen_by_server.wait_for(MemberEventKind::joined, alpha));
  client.reset();
  EXPECT_TRUE(seen_by_server.wait_for(MemberEventKind::left, "alpha"));
  EXPECT_TRUE(seen_by_server.wait_for(MemberEventKind::left, alpha));
  EXPECT_TRUE(server.members().empty());
}

TEST_P(MemberEvents, ACallbackMayUseTheContext) {
  Context client = Context::create({.transport = way().transport}).value();
  Context server = Context::create({.transport = way().transport}).value();
  std::atomic<bool> called{false};
  server.on_member([&](const MemberEvent&) {
    (void)server.describe();
    (void)server.members();
    (void)Listener::bind(server, "127.0.0.1:0");
    called = true;
  });
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  Pipe pipe = Pipe::connect(client, listener.address(), kPatience).value();
  EXPECT_TRUE(eventually([&] { return called.load(); }));
}

TEST(MemberLines, WarnOfALossThatNoCallReturns) {
  Context server = Context::create({.name = "server"}).value();
  Listener listener =
      Listener::bind(server, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  const LogLines lines;
  const auto lose = [&](bool with_pipe) {
    RawClient peer(listener.address(), claims());
    ASSERT_TRUE(is_ready(peer.choose()));
    if (with_pipe) {
      peer.open(1, peer.ticket());
      Pipe pipe = listener.accept(kPatience).value();
      shutdown(peer.fd(), SHUT_RDWR);
      EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost));
    } else {
      EXPECT_TRUE(eventually([&] { return server.members().size() == 1; }));
    }
  };
  lose(true);
  EXPECT_TRUE(eventually([&] { return server.members().empty(); }));
  EXPECT_FALSE(lines.have("lost: "));
  lose(false);
  EXPECT_TRUE(eventually([&] { return lines.have("lost: stranger"); }));
}

}  // namespace
}  // namespace tendon::test
