// SPDX-License-Identifier: Apache-2.0
// Nodes on hosts that do not reach each other, but a router: hosts are network namespaces, each
// with a runtime directory of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "fabric/zenoh_session.hpp"
#include "process/command.hpp"
#include "process/network.hpp"
#include "process/peer.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr std::uint32_t kVision = 0;
constexpr std::uint32_t kRouter = 1;
constexpr std::uint32_t kMotor = 2;
constexpr const char* kPort = ":7447";
constexpr int kSamples = 60;

class RoutedHosts : public ProcessTest {
 protected:
  void SetUp() override {
    if (!detail::zenoh_version()) GTEST_SKIP() << "this build has no Zenoh";
    if (const auto reason = Network::why_not()) GTEST_SKIP() << *reason;
  }
  /// The router is on both networks, the others are on one each.
  void part_networks() const {
    network_->run(kVision, {"ip", "link", "set", "net1", "down"});
    network_->run(kMotor, {"ip", "link", "set", "net0", "down"});
  }
  void start_router() {
    network_->inside(kRouter, [&] {
      router_ = std::make_unique<Command>(
          std::vector<std::string>{"router", "--listen", std::string("0.0.0.0") + kPort});
    });
    router_->wait_for_err("tendon: ");
  }
  [[nodiscard]] std::unique_ptr<Peer> start(std::uint32_t host, std::uint32_t network,
                                            const std::string& name,
                                            const std::string& listen = "") const {
    Peer::Options options;
    options.program = "node_main";
    options.arguments = {name, "auto", "60000",
                         "router=" + Network::address(kRouter, network) + kPort};
    if (!listen.empty()) options.arguments.push_back("listen=" + listen);
    const std::string folder = runtime_folder() + "/host" + std::to_string(host);
    EXPECT_TRUE(mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) << folder;
    options.environment["TENDON_RUNTIME_DIR"] = folder;
    std::unique_ptr<Peer> peer;
    network_->inside(host, [&] { peer = std::make_unique<Peer>(std::move(options)); });
    return peer;
  }
  // All of them come, in their order, and none is another's.
  static void expect_samples(Peer& vision, Peer& motor, int first, std::uint64_t size_bytes) {
    for (int n = first; n < first + kSamples; ++n) {
      ASSERT_TRUE(is_ok(vision.ask("publish " + std::to_string(size_bytes))));
      ASSERT_EQ(motor.ask("recv frames " + std::to_string(size_bytes)), "ok " + std::to_string(n));
    }
  }

  std::optional<Network> network_;
  std::unique_ptr<Command> router_;
};

TEST_F(RoutedHosts, ExchangeSamplesThroughTheRouterAlone) {
  network_.emplace(3, 2);
  part_networks();
  start_router();
  const auto vision = start(kVision, 0, "vision", Network::address(kVision, 0) + ":0");
  const auto motor = start(kMotor, 1, "motor", Network::address(kMotor, 1) + ":0");
  ASSERT_TRUE(is_ok(vision->ask("publisher count 8")));
  ASSERT_TRUE(is_ok(motor->ask("subscribe count frames")));
  ASSERT_TRUE(is_ok(vision->ask("wait 1")));
  EXPECT_THAT(motor->ask("path vision"),
              AllOf(StartsWith("ok routed: "), HasSubstr(Network::address(kVision, 0)),
                    HasSubstr("dial-back"), HasSubstr("window 1024 KiB")));
  expect_samples(*vision, *motor, 1, 100);
  expect_samples(*vision, *motor, 1 + kSamples, 1'000'000);
  // Another one, which serves: the link is made again, and goes on behind the last sample.
  router_->signal(SIGKILL);
  (void)router_->finish();
  start_router();
  ASSERT_TRUE(is_ok(vision->ask("publish 100 1")));
  ASSERT_EQ(motor->ask("recv frames 100"), "ok " + std::to_string(2 * kSamples + 1));
  EXPECT_THAT(motor->ask("path vision"), StartsWith("ok routed: "));
}

TEST_F(RoutedHosts, DialBackWhereOnlyTheSubscriberListens) {
  network_.emplace(3);
  start_router();
  const auto vision = start(kVision, 0, "vision");
  const auto motor = start(kMotor, 0, "motor", Network::address(kMotor) + ":0");
  ASSERT_TRUE(is_ok(vision->ask("publisher count 8")));
  ASSERT_TRUE(is_ok(motor->ask("subscribe count frames")));
  ASSERT_TRUE(is_ok(vision->ask("wait 1")));
  EXPECT_THAT(motor->ask("path vision"), StartsWith("ok tcp: "));
  expect_samples(*vision, *motor, 1, 1'000'000);
}

}  // namespace
}  // namespace tendon::test
