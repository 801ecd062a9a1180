// SPDX-License-Identifier: Apache-2.0
// Several routers of the real Zenoh, some of which do not answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <tendon/fabric/node.hpp>
#include <tendon/observe/log.hpp>
#include <thread>
#include <vector>

#include "fabric/discovery/zenoh_membership.hpp"
#include "fabric/zenoh/endpoint_look.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "session/holder.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/raw_socket.hpp"
#include "support/scratch_dir.hpp"
#include "support/told_lines.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::open_zenoh;
using detail::ZenohMode;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using Port = std::unique_ptr<detail::ZenohPort>;

/// Answers each connection as a web server does if it receives no HTTP.
class WebServer {
 public:
  WebServer() : thread_([this] { serve(); }) {}
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;
  ~WebServer() {
    ending_ = true;
    listener_.close();
    thread_.join();
  }
  [[nodiscard]] const std::string& address() const { return listener_.address(); }

 private:
  void serve() {
    while (!ending_) {
      const detail::OwnedFd client = listener_.accept();
      if (client) send_all(client.get(), "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    }
  }

  const RawListener listener_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

/// Returns an address at which nobody listens.
std::string dead_address() { return RawListener().address(); }

class SeveralRouters : public testing::Test {
 protected:
  void SetUp() override {
    if (!detail::zenoh_version()) GTEST_SKIP() << "this build has no Zenoh";
    unsetenv("ZENOH_CONFIG_OVERRIDE");
    unsetenv("TENDON_ROUTER");
  }
  [[nodiscard]] std::string place(const std::string& name) const {
    return "unix:" + (dir_.path() / name).string();
  }
  [[nodiscard]] Port router(const std::string& name, std::vector<std::string> connect = {}) const {
    return open_zenoh({.mode = ZenohMode::router,
                       .connect = detail::zenoh_endpoints(connect).value(),
                       .listen = detail::zenoh_endpoints({place(name)}).value()},
                      kPatience)
        .value();
  }
  [[nodiscard]] static Result<Node> try_to_join(Context& context, const std::string& name,
                                                std::vector<std::string> routers,
                                                Deadline deadline) {
    return Node::join(context, {.domain = "brain", .name = name, .routers = std::move(routers)},
                      deadline);
  }
  [[nodiscard]] static Program join(const std::string& name, std::vector<std::string> routers) {
    Context context = Context::create({.name = name}).value();
    Node node = try_to_join(context, name, std::move(routers), kPatience).value();
    return {std::move(context), std::move(node)};
  }
  static bool sees(Program& program, const std::vector<std::string>& names) {
    return succeeds(program.node.survey(kPatience)) && program.node.nodes() == names;
  }

  const ScratchDir dir_;
};

TEST_F(SeveralRouters, AreTriedInTurnWhateverTheFirstOneIs) {
  const auto alive = router("alive");
  const RawListener silent;
  const WebServer web;
  for (const std::string& other :
       {dead_address(), silent.address(), web.address(), place("no socket")}) {
    Context context = Context::create({.name = "vision"}).value();
    EXPECT_TRUE(succeeds(try_to_join(context, "vision", {other, place("alive")}, 2500ms))) << other;
    EXPECT_TRUE(succeeds(try_to_join(context, "motor", {place("alive"), other}, 2500ms))) << other;
  }
  setenv("TENDON_ROUTER", (dead_address() + ',' + place("alive")).c_str(), 1);
  Context context = Context::create({}).value();
  EXPECT_TRUE(succeeds(try_to_join(context, "by the environment", {}, kPatience)));
  unsetenv("TENDON_ROUTER");
}

TEST_F(SeveralRouters, EachHaveAReasonInTheError) {
  const RawListener silent;
  const WebServer web;
  const std::string dead = dead_address();
  Context context = Context::create({}).value();
  const auto all = try_to_join(context, "a", {dead, silent.address(), web.address()}, 700ms);
  EXPECT_TRUE(fails_with(all, ErrorCode::unreachable,
                         "no router answers at tcp/" + dead + ": connection refused; "));
  EXPECT_THAT(all.error().detail,
              HasSubstr("tcp/" + silent.address() +
                        ": a program takes the connection, and did not finish Zenoh's handshake"));
  EXPECT_TRUE(fails_with(try_to_join(context, "a", {web.address()}, 400ms), ErrorCode::unreachable,
                         web.address() + ": a program takes the connection, and is no router"));
  const auto nowhere = try_to_join(context, "a", {place("nobody")}, 50ms);
  EXPECT_TRUE(fails_with(nowhere, ErrorCode::unreachable, "nobody: nobody listens there"));
  // Zenoh's own texts name lines of its sources.
  for (const auto* each : {&all, &nowhere})
    EXPECT_EQ(each->error().detail.find(".rs:"), std::string::npos) << each->error().detail;
}

TEST_F(SeveralRouters, TakeTheirNodesOverFromOneThatDies) {
  auto first = router("first");
  auto second = router("second", {place("first")});
  const std::vector<std::string> both{place("first"), place("second")};
  Program vision = join("vision", both);
  Program motor = join("motor", {place("second"), place("first")});
  ASSERT_TRUE(eventually([&] { return sees(vision, {"motor", "vision"}); }));
  first.reset();
  Program late = join("late", both);
  ASSERT_TRUE(eventually([&] { return sees(vision, {"late", "motor", "vision"}); }));
  EXPECT_TRUE(eventually([&] { return sees(late, {"late", "motor", "vision"}); }));
  // Both routers end, and one of them returns.
  const Told told(vision.node);
  second.reset();
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::discovery_lost).empty(); }));
  EXPECT_THAT(told.of(FabricEventKind::discovery_lost)[0].reason,
              AllOf(HasSubstr("no router answers at"), HasSubstr("first"), HasSubstr("second")));
  first = router("first");
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::discovery_found).empty(); }));
  EXPECT_TRUE(eventually([&] { return sees(vision, {"late", "motor", "vision"}); }));
}

TEST_F(SeveralRouters, AreNotNeededByANodeThatJoinsInTheBackground) {
  Context context = Context::create({.name = "early"}).value();
  Node early = Node::join(context,
                          {.domain = "brain",
                           .name = "early",
                           .routers = {dead_address(), place("alive")},
                           .discovery = DiscoveryNeed::background},
                          Deadline::now())
                   .value();
  const Told told(early);
  EXPECT_TRUE(fails_with(early.survey(kBriefly), ErrorCode::timeout, "no router answered yet"));
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::discovery_lost).empty(); }));
  EXPECT_THAT(told.of(FabricEventKind::discovery_lost)[0].reason,
              AllOf(HasSubstr("no router answered yet"), HasSubstr("alive: nobody listens there")));
  const auto alive = router("alive");
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::discovery_found).empty(); }));
  Program other = join("other", {place("alive")});
  EXPECT_TRUE(eventually([&] { return sees(other, {"early", "other"}); }));
  EXPECT_TRUE(succeeds(early.survey(kPatience)));
  EXPECT_TRUE(eventually([&] {
    return early.nodes() == std::vector<std::string>{"early", "other"};
  }));
}

// Places where no router can listen

Result<Port> router_at(const std::string& endpoint) {
  return open_zenoh(
      {.mode = ZenohMode::router, .listen = {endpoint}, .profile = Profile::plaintext}, kPatience);
}

TEST_F(SeveralRouters, SayWhoHoldsTheirAddress) {
  const std::string own = "pid " + std::to_string(getpid()) + " (";
  const RawListener other;
  EXPECT_TRUE(fails_with(router_at("tcp/" + other.address()), ErrorCode::address_in_use, own));
  const std::string path = "unixsock-stream/" + (dir_.path() / "router").string();
  const auto served = router_at(path);
  ASSERT_TRUE(succeeds(served));
  EXPECT_TRUE(fails_with(router_at(path), ErrorCode::address_in_use, own));
  // 192.0.2.0/24 is for documents.
  EXPECT_TRUE(fails_with(router_at("tcp/192.0.2.1:7447"), ErrorCode::invalid_argument,
                         "192.0.2.1:7447 is no address of this host"));
  EXPECT_TRUE(fails_with(router_at("unixsock-stream//no such directory/router"),
                         ErrorCode::file_not_found, "/no such directory/router"));
  for (const std::string& bad : {"tcp/" + other.address(), path})
    EXPECT_EQ(router_at(bad).error().detail.find(".rs:"), std::string::npos);
}

TEST_F(SeveralRouters, LeaveZenohsOwnWordsToTheLog) {
  ToldLines logged;
  set_log_callback(LogLevel::info, [&](const LogLine& line) {
    if (line.where == "fabric.zenoh") logged.add(std::string(line.text));
  });
  const RawListener other;
  (void)router_at("tcp/" + other.address());
  set_log_callback(LogLevel::warn, {});
  EXPECT_THAT(logged.all(), Contains(HasSubstr("opening a router of Zenoh: ")));
}

TEST(RouterEndpoints, HaveThePortOfRoutersWhereNoneIsGiven) {
  EXPECT_THAT(
      detail::zenoh_endpoints({"10.0.0.7", "10.0.0.7:17", "[::1]", "0.0.0.0", "unix:/x"}).value(),
      ElementsAre("tcp/10.0.0.7:7447", "tcp/10.0.0.7:17", "tcp/[::1]:7447", "tcp/0.0.0.0:7447",
                  "unixsock-stream//x"));
  for (const char* bad : {"", "nowhere", "unix:", "udp/10.0.0.7:7447", "unix:@abstract"}) {
    EXPECT_TRUE(
        fails_with(detail::zenoh_endpoints({bad}), ErrorCode::invalid_argument, "HOST:PORT"))
        << bad;
  }
}

TEST(ProcessText, NamesAProcessAndSaysThatItIsStopped) {
  const pid_t child = fork();
  if (child == 0) {
    raise(SIGSTOP);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(TEMP_FAILURE_RETRY(waitpid(child, &status, WUNTRACED)), child);
  EXPECT_THAT(detail::process_text(child),
              AllOf(HasSubstr("pid " + std::to_string(child) + " ("), HasSubstr("stopped")));
  EXPECT_EQ(detail::process_text(getpid()).find("stopped"), std::string::npos);
  kill(child, SIGKILL);
  (void)wait_for(child);
}

}  // namespace
}  // namespace tendon::test
