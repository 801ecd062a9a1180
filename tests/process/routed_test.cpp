// SPDX-License-Identifier: Apache-2.0
// Nodes on hosts, with a router: hosts are network namespaces, each with a runtime directory of its
// own. Some reach each other only through the router, some are cut off.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "fabric/zenoh/zenoh_session.hpp"
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
  void start_router() { router_ = start_router_at(kRouter); }
  [[nodiscard]] std::unique_ptr<Command> start_router_at(
      std::uint32_t host, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"router", "--insecure-plaintext", "--listen",
                                   std::string("0.0.0.0") + kPort};
    words.insert(words.end(), more.begin(), more.end());
    std::unique_ptr<Command> router;
    network_->inside(host, [&] { router = std::make_unique<Command>(words); });
    router->wait_for_err("tendon: ");
    return router;
  }
  [[nodiscard]] std::unique_ptr<Peer> start(std::uint32_t host, std::uint32_t network,
                                            const std::string& name, const std::string& listen = "",
                                            const std::string& lease_ms = "60000") const {
    std::vector<std::string> arguments{name, "auto", lease_ms,
                                       "router=" + Network::address(kRouter, network) + kPort};
    if (!listen.empty()) arguments.push_back("listen=" + listen);
    return start_node(host, std::move(arguments));
  }
  [[nodiscard]] std::unique_ptr<Peer> start_node(std::uint32_t host,
                                                 std::vector<std::string> arguments) const {
    Peer::Options options;
    options.program = "node_main";
    options.arguments = std::move(arguments);
    const std::string folder = runtime_folder() + "/host" + std::to_string(host);
    EXPECT_TRUE(mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) << folder;
    options.environment["TENDON_RUNTIME_DIR"] = folder;
    std::unique_ptr<Peer> peer;
    network_->inside(host, [&] { peer = std::make_unique<Peer>(std::move(options)); });
    return peer;
  }
  // Expects that all samples arrive, in their order, and none from another node.
  static void expect_samples(Peer& vision, Peer& motor, int first, std::uint64_t size_bytes) {
    for (int n = first; n < first + kSamples; ++n) {
      ASSERT_TRUE(is_ok(vision.ask("publish " + std::to_string(size_bytes))));
      ASSERT_EQ(motor.ask("recv frames " + std::to_string(size_bytes)), "ok " + std::to_string(n));
    }
  }

  /// Takes samples from number `next` to `last` or beyond: each arrives, or is in a gap before the
  /// next one. Returns how many were in gaps.
  static std::uint64_t take_on(Peer& peer, std::uint64_t& next, std::uint64_t last) {
    std::uint64_t missing = 0;
    while (next <= last) {
      std::istringstream words(value_of(peer.ask("recv frames 1000")));
      std::uint64_t sequence = 0;
      std::uint64_t gap_first = 0;
      std::uint64_t gap_last = 0;
      std::string reason;
      words >> sequence;
      while (words >> gap_first >> gap_last >> reason) {
        EXPECT_EQ(gap_first, next);
        missing += gap_last + 1 - gap_first;
        next = gap_last + 1;
      }
      EXPECT_EQ(sequence, next);
      if (sequence != next) return missing;
      ++next;
    }
    return missing;
  }
  static std::uint64_t take_until(Peer& peer, std::uint64_t first, std::uint64_t last) {
    return take_on(peer, first, last);
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
  // Starts another router, which serves: the link is made again, and continues after the last
  // sample.
  router_->signal(SIGKILL);
  (void)router_->finish();
  start_router();
  ASSERT_TRUE(is_ok(vision->ask("publish 100 1")));
  ASSERT_EQ(motor->ask("recv frames 100"), "ok " + std::to_string(2 * kSamples + 1));
  EXPECT_THAT(motor->ask("path vision"), StartsWith("ok routed: "));
}

// Its first address is on a network that the other host does not reach.
TEST_F(RoutedHosts, ANodeThatListensAtEveryInterfaceIsDialled) {
  network_.emplace(3, 2);
  start_router();
  network_->run(kMotor, {"ip", "link", "set", "net0", "down"});
  const auto vision = start(kVision, 1, "vision", "0.0.0.0:0");
  const auto motor = start(kMotor, 1, "motor");
  ASSERT_TRUE(is_ok(vision->ask("publisher count 8")));
  ASSERT_TRUE(is_ok(motor->ask("subscribe count frames")));
  ASSERT_TRUE(is_ok(vision->ask("wait 1")));
  EXPECT_THAT(motor->ask("path vision"), StartsWith("ok tcp: "));
  expect_samples(*vision, *motor, 1, 1000);
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

// Samples that are published while there is no router are in the gaps, except for the history.
TEST_F(RoutedHosts, KnowWhatTheyMissedWhenTheRouterDiesUnderTraffic) {
  network_.emplace(3, 2);
  part_networks();
  start_router();
  const auto vision = start(kVision, 0, "vision");
  const auto motor = start(kMotor, 1, "motor");
  ASSERT_TRUE(is_ok(vision->ask("publisher count 8")));
  ASSERT_TRUE(is_ok(motor->ask("subscribe count frames")));
  ASSERT_TRUE(is_ok(vision->ask("wait 1")));
  constexpr std::uint64_t kCount = 2000;  // at 1 kHz
  constexpr std::uint64_t kBefore = 500;
  vision->tell("publish 1000 " + std::to_string(kCount) + " 1000");
  std::uint64_t next = 1;
  (void)take_on(*motor, next, kBefore);  // a busy machine misses some of 1 kHz
  router_->signal(SIGKILL);
  (void)router_->finish();
  EXPECT_TRUE(is_ok(vision->line()));  // publishing waits for no router
  start_router();
  EXPECT_GT(take_on(*motor, next, kCount), 0u);
  EXPECT_THAT(motor->ask("path vision"), StartsWith("ok routed: "));
}

// A stopped reader keeps its window; another reader behind the same router gets everything.
TEST_F(RoutedHosts, AStoppedReaderHoldsUpNobody) {
  network_.emplace(3, 2);
  part_networks();
  start_router();
  const auto vision = start(kVision, 0, "vision");
  const auto stopped = start(kMotor, 1, "stopped");
  const auto motor = start(kMotor, 1, "motor");
  ASSERT_TRUE(is_ok(vision->ask("publisher count 8")));
  for (Peer* const reader : {stopped.get(), motor.get()})
    ASSERT_TRUE(is_ok(reader->ask("subscribe count frames")));
  ASSERT_TRUE(is_ok(vision->ask("wait 2")));
  stopped->signal(SIGSTOP);
  expect_samples(*vision, *motor, 1, 100'000);
  stopped->signal(SIGCONT);
  int last = 0;
  int heard = 0;
  while (last < kSamples) {
    std::istringstream words(value_of(stopped->ask("recv frames 100000")));
    ASSERT_TRUE(words >> last);
    ++heard;
    std::uint64_t first_missing = 0;
    std::uint64_t last_missing = 0;
    for (std::string reason; words >> first_missing >> last_missing >> reason;) {
      heard += static_cast<int>(last_missing - first_missing + 1);
      EXPECT_EQ(reason, "overflow") << "the router had no room for its window, and cut it off";
    }
    EXPECT_EQ(heard, last) << "each sample came, or is in a gap";
  }
}

// A node with the defaults listens at no port: a router of Zenoh finds its own port free.
TEST_F(RoutedHosts, ThePortOfARouterIsFreeBesideNodes) {
  network_.emplace(1);
  const std::vector<std::string> words{"topic", "echo", "none", "--domain", runtime_folder()};
  std::unique_ptr<Command> first;
  std::unique_ptr<Command> second;
  std::unique_ptr<Command> router;
  network_->inside(0, [&] {
    first = std::make_unique<Command>(words);
    second = std::make_unique<Command>(words);
  });
  for (Command* const node : {first.get(), second.get()})
    (void)node->wait_for_err("tendon: no node was found");
  const std::vector<std::string> router_words{"router", "--insecure-plaintext", "--listen",
                                              "[::]:7447"};
  network_->inside(0, [&] { router = std::make_unique<Command>(router_words); });
  EXPECT_THAT(router->wait_for_err("tendon: "), HasSubstr("7447"));
  Ended list;
  network_->inside(0, [&] {
    list = run_tendon({"node", "list", "--router", "127.0.0.1:7447", "--timeout", "20"});
  });
  EXPECT_EQ(list.code, 0) << list.err;
  // The port is not free now: another router cannot start.
  Ended another;
  network_->inside(0, [&] { another = run_tendon(router_words); });
  EXPECT_NE(another.code, 0);
}

/// Three hosts: a router on two of them, linked, the brain beside the first, sensors on the third.
/// Each node names both routers.
class TwoRouters : public RoutedHosts {
 protected:
  static constexpr std::uint32_t kBrain = 0;
  static constexpr std::uint32_t kSensors = 2;

  void SetUp() override {
    RoutedHosts::SetUp();
    if (IsSkipped()) return;
    network_.emplace(3);
    start_one_of_two(0);
    start_one_of_two(1);
  }
  void start_one_of_two(std::uint32_t host) {
    routers_.at(host) = start_router_at(host, {"--connect", Network::address(1 - host) + kPort});
  }
  void kill_router(std::uint32_t host) {
    routers_.at(host)->signal(SIGKILL);
    (void)routers_.at(host)->finish();
  }
  [[nodiscard]] std::unique_ptr<Peer> start_by_both(std::uint32_t host,
                                                    const std::string& name) const {
    return start_node(
        host, {name, "auto", "60000", "router=" + Network::address(0) + kPort,
               "router=" + Network::address(1) + kPort, "listen=" + Network::address(host) + ":0"});
  }

  std::array<std::unique_ptr<Command>, 2> routers_;
};

TEST_F(TwoRouters, EachIsKilledInTurnWhileASensorJoins) {
  const auto brain = start_by_both(kBrain, "brain");
  ASSERT_TRUE(is_ok(brain->ask("subscribe count frames")));
  std::vector<std::unique_ptr<Peer>> sensors;
  for (const std::uint32_t router : {0u, 1u}) {
    sensors.push_back(start_by_both(kSensors, "sensor " + std::to_string(router)));
    kill_router(router);  // while it joins: the other router serves it
    ASSERT_TRUE(is_ok(sensors.back()->ask("publisher count 8")));
    ASSERT_TRUE(is_ok(sensors.back()->ask("wait 1")));
    ASSERT_TRUE(is_ok(sensors.back()->ask("publish 1000")));
    ASSERT_EQ(brain->ask("recv frames 1000"), "ok 1");
    start_one_of_two(router);
  }
  // Both still lead to the brain.
  for (const auto& sensor : sensors) {
    ASSERT_TRUE(is_ok(sensor->ask("publish 1000")));
    ASSERT_EQ(brain->ask("recv frames 1000"), "ok 2");
  }
}

/// The two ways in which a network becomes silent.
class PartedHosts : public RoutedHosts, public testing::WithParamInterface<const char*> {
 protected:
  [[nodiscard]] bool by_cable() const { return std::string(GetParam()) == "cable"; }
  void part(std::uint32_t host) { by_cable() ? network_->pull_cable(host) : network_->drop(host); }
  void heal(std::uint32_t host) { by_cable() ? network_->put_cable(host) : network_->heal(host); }
};
INSTANTIATE_TEST_SUITE_P(Ways, PartedHosts, testing::Values("cable", "packets"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST_P(PartedHosts, AreLostByTheLeaseAndResumeWithOneGap) {
  network_.emplace(3);
  start_router();
  const auto listen = [](std::uint32_t host) { return Network::address(host) + ":0"; };
  const auto vision = start(kVision, 0, "vision", listen(kVision), "500");
  const auto motor = start(kMotor, 0, "motor", listen(kMotor), "500");
  const auto beside = start(kRouter, 0, "beside", listen(kRouter), "500");
  ASSERT_TRUE(is_ok(vision->ask("publisher count 8")));
  for (Peer* const reader : {motor.get(), beside.get()})
    ASSERT_TRUE(is_ok(reader->ask("subscribe count frames")));
  ASSERT_TRUE(is_ok(vision->ask("wait 2")));
  EXPECT_THAT(motor->ask("path vision"), StartsWith("ok tcp: "));
  ASSERT_TRUE(is_ok(vision->ask("publish 1000 10")));
  EXPECT_EQ(take_until(*motor, 1, 10), 0u);
  EXPECT_EQ(take_until(*beside, 1, 10), 0u);
  part(kMotor);
  ASSERT_TRUE(eventually([&] { return vision->ask("subscribers") == "ok 1"; }));
  for (std::uint64_t sequence = 11; sequence <= 50; ++sequence) {
    ASSERT_TRUE(is_ok(vision->ask("publish 1000 1")));
    EXPECT_EQ(take_until(*beside, sequence, sequence), 0u) << "the others go on";
  }
  heal(kMotor);
  ASSERT_TRUE(is_ok(vision->ask("wait 2")));
  EXPECT_EQ(take_until(*motor, 11, 50), 32u) << "the last 8 are in the history";
}

}  // namespace
}  // namespace tendon::test
