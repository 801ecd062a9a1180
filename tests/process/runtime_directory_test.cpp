// SPDX-License-Identifier: Apache-2.0
// Processes whose runtime directory is removed while they run, and files that killed processes
// leave in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fabric/zenoh/zenoh_session.hpp"
#include "process/peer.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

namespace fs = std::filesystem;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

class Directory : public ProcessTest {
 protected:
  void SetUp() override {
    if (!detail::zenoh_version()) GTEST_SKIP() << "this build has no Zenoh";
  }
  [[nodiscard]] std::string run() const { return runtime_folder() + "/run"; }
  [[nodiscard]] std::unique_ptr<Peer> start(const std::string& name) const {
    Peer::Options options;
    options.program = "node_main";
    options.arguments = {name, "auto", "60000", "star"};
    options.environment["TENDON_RUNTIME_DIR"] = run();
    return std::make_unique<Peer>(std::move(options));
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    std::error_code gone;
    for (const auto& entry : fs::directory_iterator(run(), gone))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  /// Removes the directory like `rm -r`; tries again where a name was made again meanwhile.
  void remove_run() const {
    std::error_code busy;
    do {
      fs::remove_all(run(), busy);
    } while (busy);
  }
  void begin() {
    vision_ = start("vision");
    motor_ = start("motor");
    ASSERT_TRUE(is_ok(vision_->ask("publisher count 4")));
    ASSERT_TRUE(is_ok(motor_->ask("subscribe count frames")));
    ASSERT_TRUE(is_ok(vision_->ask("wait 1")));
    expect_sample({motor_.get()});
  }
  void expect_sample(const std::vector<Peer*>& peers) {
    ASSERT_TRUE(is_ok(vision_->ask("publish 1000")));
    ++published_;
    for (Peer* peer : peers)
      EXPECT_EQ(peer->ask("recv frames 1000"), "ok " + std::to_string(published_));
  }
  /// A newcomer finds the old nodes in shared memory, and they have never lost each other.
  void expect_found(const std::string& name) {
    const auto late = start(name);
    ASSERT_TRUE(is_ok(late->ask("subscribe count frames")));
    ASSERT_TRUE(is_ok(vision_->ask("wait 2")));
    // Its first samples are those of the history.
    for (std::uint64_t n = published_ > 4 ? published_ - 3 : 1; n <= published_; ++n)
      EXPECT_THAT(late->ask("recv frames 1000"), StartsWith("ok " + std::to_string(n)));
    expect_sample({motor_.get(), late.get()});
    EXPECT_THAT(late->ask("path vision"), StartsWith("ok shm: "));
    ASSERT_TRUE(is_ok(late->ask("publisher late/count 1"))) << "and the other way round";
  }

  std::unique_ptr<Peer> vision_;
  std::unique_ptr<Peer> motor_;
  std::uint64_t published_ = 0;
};

TEST_F(Directory, ThatWasRemovedIsServedAgain) {
  begin();
  remove_run();
  const std::string anew = "ok " + run() + " > " + run();
  EXPECT_EQ(vision_->ask("moved"), anew);
  EXPECT_EQ(motor_->ask("moved"), anew);
  expect_found("late");
  expect_sample({motor_.get()});
}

// The newcomer makes the directory, and serves the star in it, before the old nodes look.
TEST_F(Directory, ThatWasRemovedIsMadeByANewcomer) {
  begin();
  remove_run();
  expect_found("late");
}

TEST_F(Directory, ThatWasMovedAwayIsServedAgain) {
  begin();
  fs::rename(run(), run() + "-away");
  expect_found("late");
}

// A stopped process keeps the lock of a file that nobody sees any more.
TEST_F(Directory, ThatWasRemovedIsServedAgainWhileItsHolderIsStopped) {
  begin();
  vision_->signal(SIGSTOP);
  remove_run();
  EXPECT_EQ(motor_->ask("moved"), "ok " + run() + " > " + run());
  const auto late = start("late");
  ASSERT_TRUE(is_ok(late->ask("publisher side 1")));
  ASSERT_TRUE(is_ok(motor_->ask("subscribe side others")));
  ASSERT_TRUE(is_ok(late->ask("wait 1")));
  ASSERT_TRUE(is_ok(late->ask("publish 1000")));
  EXPECT_EQ(motor_->ask("recv others 1000"), "ok 1");
  vision_->signal(SIGCONT);
  expect_found("later");
}

TEST_F(Directory, ThatBecameAnotherUsersIsNotServed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a directory away";
  begin();
  ASSERT_EQ(chown(run().c_str(), 65534, 65534), 0);
  const std::string left = "ok " + run() + " > ";
  EXPECT_EQ(vision_->ask("moved"), left);
  EXPECT_EQ(motor_->ask("moved"), left);
  EXPECT_TRUE(eventually([&] {
    const auto all = names();
    return std::ranges::none_of(
        all, [](const auto& name) { return name.ends_with(".node") || name.ends_with(".zenoh"); });
  })) << testing::PrintToString(names());
  expect_sample({motor_.get()});
  ASSERT_EQ(chown(run().c_str(), geteuid(), geteuid()), 0);
  const std::string back = "ok  > " + run();
  EXPECT_EQ(vision_->ask("moved"), back);
  EXPECT_EQ(motor_->ask("moved"), back);
  expect_found("late");
}

// The next start of any process removes the files of a killed process.
TEST_F(Directory, HasNothingOfKilledNodesAfterTheNextStart) {
  begin();
  const auto before = names();
  ASSERT_EQ(std::ranges::count_if(before, [](const auto& name) { return name.ends_with(".node"); }),
            2);
  ASSERT_TRUE(
      std::ranges::any_of(before, [](const auto& name) { return name.ends_with(".zenoh"); }));
  vision_->kill_and_wait();
  motor_->kill_and_wait();
  EXPECT_THAT(names(), Not(IsEmpty()));
  const Peer other({{}, {{"TENDON_RUNTIME_DIR", run()}}});
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Directory, KeepsWhatLivingNodesHave) {
  begin();
  vision_->signal(SIGSTOP);
  const auto before = names();
  { const Peer other({{}, {{"TENDON_RUNTIME_DIR", run()}}}); }
  const auto after = names();
  EXPECT_TRUE(std::ranges::includes(after, before)) << testing::PrintToString(after);
  vision_->signal(SIGCONT);
  expect_found("late");
}

}  // namespace
}  // namespace tendon::test
