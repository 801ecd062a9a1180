// SPDX-License-Identifier: Apache-2.0
// A controller and workers on separate hosts, which are network namespaces. Worker pipes and links
// are tcp, the flows tcp with CURVE. A fault in one of these planes leaves the others unchanged.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <tendon/control/controller.hpp>
#include <utility>
#include <vector>

#include "process/network.hpp"
#include "process/peer.hpp"
#include "process/stopped_worker.hpp"
#include "support/expect.hpp"
#include "support/storage_of.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kSize = 3;

/// The ports with a listener on this thread's host.
std::set<std::uint32_t> listening_ports() {
  std::set<std::uint32_t> ports;
  for (const char* const name : {"/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"}) {
    std::ifstream table(name);
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::string number;
      std::string local;
      std::string remote;
      std::string state;
      words >> number >> local >> remote >> state;
      if (state != "0A") continue;
      const std::string port = local.substr(local.rfind(':') + 1);
      ports.insert(static_cast<std::uint32_t>(std::stoul(port, nullptr, 16)));
    }
  }
  return ports;
}

/// The controller is on host 0 and in this process, the worker of rank r on host r + 1.
class ControlOverNetworks : public ProcessTest {
 protected:
  void SetUp() override {
    if (const auto reason = Network::why_not()) GTEST_SKIP() << *reason;
    network_.emplace(kSize + 1);
  }
  /// Runs `body` on the controller's host, where its sockets are made, after the workers have
  /// joined.
  template <class Body>
  void run(Body body) {
    network_->inside(0, [&] {
      context_.emplace(Context::create({.name = "controller", .lease = lease_}).value());
      controller_.emplace(
          Controller::bind(*context_, ParallelLayout::make({.tensor = kSize}).value(),
                           Network::address(0) + ":0", {.security = {Profile::plaintext}})
              .value());
      for (std::uint32_t rank = 0; rank < kSize; ++rank) workers_.push_back(start_worker(rank));
      ASSERT_TRUE(succeeds(controller_->wait_for_workers(kPatience)));
      for (const auto& worker : workers_) ASSERT_EQ(worker->line(), "joined");
      body();
      controller_.reset();
      workers_.clear();
      context_.reset();
    });
  }
  Network& network() { return *network_; }
  Controller& controller() { return *controller_; }
  Peer& worker(std::uint32_t rank) { return *workers_[rank]; }
  std::unique_ptr<Peer> start_worker(std::uint32_t rank) {
    Peer::Options options;
    options.program = "worker_main";
    options.arguments = {
        "worker",    controller_->address(),        std::to_string(kSize), std::to_string(rank),
        "plaintext", std::to_string(lease_.count())};
    const std::string folder = runtime_folder() + "/host" + std::to_string(rank + 1);
    EXPECT_TRUE(mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST) << folder;
    options.environment["TENDON_RUNTIME_DIR"] = folder;
    std::unique_ptr<Peer> worker;
    network_->inside(rank + 1, [&] { worker = std::make_unique<Peer>(options); });
    return worker;
  }
  void replace(std::uint32_t rank) { workers_[rank] = start_worker(rank); }

  Result<void> give(const std::string& payload) {
    return controller_->broadcast({.schedule_id = ++id_, .payload = storage_of(payload)},
                                  kPatience);
  }
  [[nodiscard]] std::uint64_t id() const { return id_; }
  /// The text of a step's outputs; every worker sends the same.
  std::string collect(std::uint64_t id) {
    const auto outputs = controller_->collect(id, kPatience);
    EXPECT_TRUE(succeeds(outputs));
    if (!outputs) return {};
    std::string said(as_text(outputs->front().payload.bytes()));
    for (const auto& worker : workers_)
      EXPECT_EQ(worker->line(), "step " + std::to_string(id) + " " + said);
    return said;
  }
  std::string do_step(const std::string& payload) {
    EXPECT_TRUE(succeeds(give(payload)));
    return collect(id_);
  }
  /// Each worker's `waiting`, from its heartbeats; the controller asks nothing.
  std::vector<std::string> waiting() {
    std::vector<std::string> texts(kSize);
    for (const WorkerStatus& status : controller_->status().workers)
      texts[status.rank.value] = status.waiting;
    return texts;
  }

  std::chrono::milliseconds lease_ = kLongLease;  // for every Context

 private:
  std::optional<Network> network_;
  std::optional<Context> context_;
  std::optional<Controller> controller_;
  std::vector<std::unique_ptr<Peer>> workers_;
  std::uint64_t id_ = 0;
};

TEST_F(ControlOverNetworks, StepsGoThereAndBackAndTheEndIsInOrder) {
  run([&] {
    for (int i = 0; i < 5; ++i) EXPECT_EQ(do_step("reduce"), "6");
    ASSERT_TRUE(succeeds(give("reduce")));
    EXPECT_TRUE(succeeds(controller().drain(kPatience)));
    EXPECT_EQ(collect(id()), "6");
    EXPECT_TRUE(succeeds(controller().stop("the test is over", kPatience)));
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      EXPECT_EQ(worker(rank).line(), "end end_of_stream");
      EXPECT_EQ(worker(rank).wait(), 0);
    }
  });
}

TEST_F(ControlOverNetworks, AWorkerThatDiesIsReplaced) {
  run([&] {
    ASSERT_TRUE(succeeds(give("reduce without 1")));
    ASSERT_EQ(worker(1).line(), "sleeps");
    worker(1).kill_and_wait();
    EXPECT_TRUE(
        fails_with(controller().collect(id(), kPatience), ErrorCode::worker_lost, "rank 1"));
    replace(1);
    ASSERT_TRUE(succeeds(controller().rebuild(kPatience)));
    EXPECT_EQ(worker(1).line(), "joined");
    for (const std::uint32_t rank : {0U, 2U}) {
      EXPECT_TRUE(worker(rank).line().starts_with("failed "));
      EXPECT_TRUE(worker(rank).line().starts_with("roster "));
    }
    EXPECT_EQ(do_step("reduce"), "6");
  });
}

TEST_F(ControlOverNetworks, WhileOneIsStoppedInACollectiveTheOthersReplyAndSayWhom) {
  // Two seconds are a pause: with the default lease of a Context no link ends.
  lease_ = ContextOptions().lease;
  ASSERT_GT(lease_, 2s);
  run([&] {
    const std::string epoch = do_step("epoch");
    ASSERT_TRUE(succeeds(give("reduce much when told")));
    for (std::uint32_t rank = 0; rank < kSize; ++rank) ASSERT_EQ(worker(rank).line(), "begun");
    worker(2).tell("go");
    EXPECT_TRUE(eventually([&] { return waiting()[2].starts_with("in all_reduce #"); }));
    worker(2).signal(SIGSTOP);
    const auto stopped_at = std::chrono::steady_clock::now();
    for (const std::uint32_t rank : {0U, 1U}) worker(rank).tell("go");
    WorkersOfAStopped others(controller());
    others.reply_until(stopped_at + 1s, id(), id());
    ASSERT_TRUE(succeeds(give("reduce")));
    others.reply_until(stopped_at + 2s, id() - 1, id());
    worker(2).signal(SIGCONT);
    EXPECT_TRUE(succeeds(controller().cancel_step(id() - 1, kPatience)));
    EXPECT_EQ(collect(id() - 1), "6");
    EXPECT_EQ(collect(id()), "6");
    EXPECT_EQ(do_step("epoch"), epoch);
    EXPECT_EQ(controller().status().roster, 1U);
  });
}

TEST_F(ControlOverNetworks, BrokenFlowsLoseNoStepAndLeaveTheGroupsAsTheyAre) {
  run([&] {
    const std::string epoch = do_step("epoch");
    std::set<std::uint32_t> ports = listening_ports();
    const std::string address = controller().address();
    ports.erase(static_cast<std::uint32_t>(std::stoul(address.substr(address.rfind(':') + 1))));
    ASSERT_EQ(ports.size(), 3U) << "inputs, outputs, microbatches";
    std::string flows;
    for (const std::uint32_t port : ports)
      flows += (flows.empty() ? "" : ", ") + std::to_string(port);
    for (int round = 0; round < 3; ++round) {
      network().reset(0, "tcp dport { " + flows + " }");
      // Packets of the workers' kernels to this host are answered with a reset, so all connections
      // in use break: those of the inputs now, those of the outputs when workers send.
      ASSERT_TRUE(succeeds(give("reduce")));
      EXPECT_TRUE(eventually([&] { return network().dropped_count(0) > 0; }));
      ASSERT_TRUE(succeeds(give("epoch")));
      network().heal(0);
      EXPECT_EQ(collect(id() - 1), "6");
      EXPECT_EQ(collect(id()), epoch);
    }
    EXPECT_EQ(controller().status().state, RosterState::running);
    EXPECT_EQ(controller().status().roster, 1U);
  });
}

/// The pairs of ranks whose link breaks.
using Links = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

class BrokenLinks : public ControlOverNetworks, public testing::WithParamInterface<Links> {};

// With one broken link, two of the three continue without a living one. With all links broken, each
// is alone.
INSTANTIATE_TEST_SUITE_P(Links, BrokenLinks,
                         testing::Values(Links{{0, 1}}, Links{{0, 2}},
                                         Links{{0, 1}, {0, 2}, {1, 2}}));

TEST_P(BrokenLinks, LeaveWorkerPipesAsTheyAreAndTheNextRosterIsOfTheSameProcesses) {
  run([&] {
    EXPECT_EQ(do_step("reduce"), "6");
    const auto before = controller().status().workers;
    std::set<std::uint32_t> hosts;
    for (const auto& [one, other] : GetParam()) {
      network().reset(one + 1, "ip saddr " + Network::address(other + 1));
      network().reset(other + 1, "ip saddr " + Network::address(one + 1));
      hosts.insert({one + 1, other + 1});
    }
    ASSERT_TRUE(succeeds(give("reduce")));
    EXPECT_TRUE(fails_with(controller().collect(id(), kPatience), ErrorCode::worker_lost,
                           "failed in step"));
    // The processes and their pipes are alive: they reply.
    for (std::uint32_t rank = 0; rank < kSize; ++rank)
      EXPECT_TRUE(succeeds(controller().ask({rank}, kPatience)));
    for (const std::uint32_t host : hosts) network().heal(host);
    ASSERT_TRUE(succeeds(controller().rebuild(kPatience)));
    const auto now = controller().status().workers;
    ASSERT_EQ(now.size(), kSize);
    for (std::uint32_t rank = 0; rank < kSize; ++rank) {
      EXPECT_EQ(now[rank].identity.context, before[rank].identity.context);
      EXPECT_TRUE(worker(rank).line().starts_with("failed "));
      EXPECT_TRUE(worker(rank).line().starts_with("roster "));
    }
    EXPECT_EQ(do_step("reduce"), "6");
  });
}

}  // namespace
}  // namespace tendon::test
