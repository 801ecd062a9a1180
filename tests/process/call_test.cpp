// SPDX-License-Identifier: Apache-2.0
// Calls between processes that are stopped and killed.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <string>
#include <tendon/fabric/node.hpp>
#include <thread>

#include "process/peer.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class CallProcesses : public ProcessTest, public testing::WithParamInterface<const char*> {
 protected:
  [[nodiscard]] Peer::Options other(const std::string& name) const {
    return {{name, GetParam(), "60000", node_.address()}, {}, "node_main"};
  }

  Context context_ = Context::create({.name = "brain", .lease = kLongLease}).value();
  Node node_ = Node::join(context_,
                          {.domain = "brain",
                           .name = "brain",
                           .peers = std::vector<std::string>{},
                           .listen = "127.0.0.1:0"},
                          kPatience)
                   .value();
};
INSTANTIATE_TEST_SUITE_P(Paths, CallProcesses, testing::Values("shm", "tcp"),
                         [](const auto& path) { return std::string(path.param); });

TEST_P(CallProcesses, OfAResponderThatIsKilledFailAtOnce) {
  Peer arm(other("arm"));
  ASSERT_TRUE(is_ok(arm.ask("responder plan hold")));
  std::thread caller([&] {
    EXPECT_TRUE(
        fails_with(node_.call("plan", numbered(1), kPatience), ErrorCode::peer_lost, "arm"));
  });
  EXPECT_TRUE(eventually([&] { return arm.ask("stats") == "ok 1 0"; }));
  arm.kill_and_wait();
  caller.join();
  Peer again(other("arm"));
  ASSERT_TRUE(is_ok(again.ask("responder plan echo")));
  EXPECT_EQ(number_of(node_.call("plan", numbered(3), kPatience).value().tensors), 3);
}

TEST_P(CallProcesses, OfAStoppedResponderEndAtTheirDeadline) {
  Peer arm(other("arm"));
  ASSERT_TRUE(is_ok(arm.ask("responder plan echo")));
  EXPECT_TRUE(succeeds(node_.call("plan", patterned(1, 100'000), kPatience)));
  arm.signal(SIGSTOP);
  for (std::uint64_t n = 0; n < 5; ++n) {
    EXPECT_TRUE(
        fails_with(node_.call("plan", patterned(n, 100'000), kBriefly), ErrorCode::timeout, "arm"));
  }
  arm.signal(SIGCONT);
  EXPECT_TRUE(is_patterned(node_.call("plan", patterned(9, 100'000), kPatience).value().tensors, 9,
                           100'000));
}

TEST_P(CallProcesses, TheHandlerHearsThatItsCallerWasKilled) {
  Peer motor(other("motor"));
  std::atomic<bool> running{false};
  std::atomic<bool> cancelled{false};
  Responder held = Responder::declare(node_, "held", [&](const Request& request) {
                     running = true;
                     cancelled = eventually([&] { return request.cancelled(); });
                     return Result<TensorDict>(request.tensors());
                   }).value();
  motor.tell("call held");
  EXPECT_TRUE(eventually([&] { return running.load(); }));
  motor.kill_and_wait();
  EXPECT_TRUE(eventually([&] { return cancelled.load(); }));
}

}  // namespace
}  // namespace tendon::test
