// SPDX-License-Identifier: Apache-2.0
// The process that serves the nodes of one host is stopped, as in a debugger: the others still find
// each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <tendon/fabric/node.hpp>
#include <tendon/observe/log.hpp>
#include <vector>

#include "core/text.hpp"
#include "fabric/keys/announcement.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "process/command.hpp"
#include "session/machine.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"
#include "support/told_lines.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

struct Program {
  Context context;
  Node node;
};

class StoppedStar : public testing::Test {
 protected:
  void SetUp() override {
    if (!detail::zenoh_version()) GTEST_SKIP() << "this build has no Zenoh";
    domain_ = "test " + folder_.path().string();
    set_log_callback(LogLevel::warn, [this](const LogLine& line) {
      if (line.where == "node.discovery") logged_.add(std::string(line.text));
    });
  }
  void TearDown() override { set_log_callback(LogLevel::warn, {}); }
  [[nodiscard]] Program join(const std::string& name) const {
    Context context = Context::create({.name = name, .lease = kLongLease}).value();
    Node node = Node::join(context, {.domain = domain_, .name = name}, kPatience).value();
    return {std::move(context), std::move(node)};
  }
  /// Starts a process with a node that exists until its object is destroyed; the first one serves
  /// the others.
  [[nodiscard]] std::unique_ptr<Command> start() const {
    auto command = std::make_unique<Command>(
        std::vector<std::string>{"topic", "echo", "none", "--domain", domain_});
    (void)command->wait_for_err("tendon: no node was found that publishes on none; ");
    return command;
  }
  static void stop(Command& command) {
    command.signal(SIGSTOP);
    command.wait_until_stopped();
  }
  [[nodiscard]] std::string place(const std::string& suffix) const {
    return detail::runtime_directory().value() + '/' +
           detail::to_hex(detail::domain_hash(domain_).value()) + suffix;
  }
  static std::string pid_of(const Command& command) {
    return "pid " + std::to_string(command.pid()) + " (tendon), which is stopped";
  }

  const ScratchDir folder_;
  std::string domain_;
  ToldLines logged_;
};

TEST_F(StoppedStar, IsJoinedBesideAndIsOneNetworkAgainWhenItGoesOn) {
  const auto holder = start();
  Program watcher = join("watcher");
  Subscriber heard = Subscriber::declare(watcher.node, "new/*").value();
  ASSERT_TRUE(eventually([&] {
    return succeeds(watcher.node.survey(kPatience)) && watcher.node.nodes().size() == 2;
  }));
  stop(*holder);
  Program newcomer = join("newcomer");
  Publisher publisher = Publisher::declare(newcomer.node, "new/1", {.qos = {keep_last(4)}}).value();
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1), kPatience)));
  const auto sample = heard.recv(kPatience);
  ASSERT_TRUE(succeeds(sample));
  EXPECT_EQ(number_of(*sample->tensors), 1);
  EXPECT_THAT(logged_.all(), Contains(AllOf(HasSubstr(pid_of(*holder)), HasSubstr(place(".zenoh")),
                                            HasSubstr(place(".zenoh2")))));
  holder->signal(SIGCONT);
  // All three are found, by the nodes of both places.
  EXPECT_TRUE(eventually([&] {
    return succeeds(newcomer.node.survey(kPatience)) && newcomer.node.nodes().size() == 3;
  }));
  const auto third = start();
  EXPECT_TRUE(eventually([&] {
    return succeeds(watcher.node.survey(kPatience)) && watcher.node.nodes().size() == 4;
  }));
}

TEST_F(StoppedStar, HasOneBesideItAndNoThird) {
  const auto first = start();
  stop(*first);
  const auto second = start();
  ASSERT_TRUE(std::filesystem::exists(place(".zenoh2")));
  stop(*second);
  Context context = Context::create({.name = "third"}).value();
  const auto third = Node::join(context, {.domain = domain_, .name = "third"}, 2500ms);
  EXPECT_TRUE(fails_with(third, ErrorCode::unreachable, pid_of(*first)));
  EXPECT_THAT(third.error().detail, AllOf(HasSubstr(pid_of(*second)), HasSubstr(place(".zenoh2"))));
  EXPECT_FALSE(std::filesystem::exists(place(".zenoh3")));
  // The first one continues, and all meet there.
  first->signal(SIGCONT);
  Program late = join("late");
  EXPECT_TRUE(eventually(
      [&] { return succeeds(late.node.survey(kPatience)) && late.node.nodes().size() >= 2; }));
  second->signal(SIGCONT);
  EXPECT_TRUE(eventually(
      [&] { return succeeds(late.node.survey(kPatience)) && late.node.nodes().size() == 3; }));
}

}  // namespace
}  // namespace tendon::test
