// SPDX-License-Identifier: Apache-2.0
// Nodes whose runtime directory is replaced. For the star topology see runtime_directory_test of
// the process tests.
#include "fabric/discovery/runtime_home.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "fabric/nodes/context_fabric.hpp"
#include "session/machine.hpp"
#include "session/socket_names.hpp"
#include "support/batches.hpp"
#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

namespace fs = std::filesystem;
using detail::file_id;
using testing::HasSubstr;

/// Collects the events of a node about its directory.
class Moves {
 public:
  explicit Moves(Node& node) {
    node.on_event([this](const FabricEvent& event) {
      if (event.kind != FabricEventKind::runtime_directory_changed) return;
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    });
  }
  [[nodiscard]] std::optional<FabricEvent> wait_for(std::size_t number) const {
    const auto has_come = [&] {
      const std::lock_guard lock(mutex_);
      return events_.size() >= number;
    };
    if (!eventually(has_come)) return std::nullopt;
    const std::lock_guard lock(mutex_);
    return events_[number - 1];
  }
  [[nodiscard]] std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return events_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<FabricEvent> events_;
};

class Home : public testing::Test {
 protected:
  Home() {
    if (const char* value = getenv("TENDON_RUNTIME_DIR")) former_ = value;
    setenv("TENDON_RUNTIME_DIR", run().c_str(), 1);
  }
  ~Home() override {
    if (former_)
      setenv("TENDON_RUNTIME_DIR", former_->c_str(), 1);
    else
      unsetenv("TENDON_RUNTIME_DIR");
  }
  struct Program {
    Context context;
    Node node;
  };
  static Program start(const std::string& name, std::vector<std::string> peers = {}) {
    Context context = Context::create({.name = name, .lease = kLongLease}).value();
    Node node =
        Node::join(context, {.domain = "home", .name = name, .peers = std::move(peers)}, kPatience)
            .value();
    return {std::move(context), std::move(node)};
  }
  [[nodiscard]] std::string run() const { return (dir_.path() / "run").string(); }
  [[nodiscard]] static std::string socket_of(const Program& program, const std::string& directory) {
    return directory + '/' + program.context.id().to_string() + ".node";
  }
  [[nodiscard]] std::string socket_of(const Program& program) const {
    return socket_of(program, run());
  }
  /// Removes as `rm -r` does, and again if a name appeared meanwhile.
  void remove_run() const {
    std::error_code busy;
    do {
      fs::remove_all(run(), busy);
    } while (busy);
  }
  /// Exchanges two directories: at no moment is either of them missing.
  static void exchange(const std::string& one, const std::string& other) {
    EXPECT_EQ(renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE), 0);
  }
  /// Expects that a newcomer that looks in the runtime directory finds the publisher.
  void expect_found(const Program& vision) const {
    const Program late = start("late", {"unix:" + socket_of(vision)});
    EXPECT_TRUE(eventually([&] {
      return late.node.nodes() == std::vector<std::string>{"late", "vision"};
    })) << socket_of(vision);
  }

  const ScratchDir dir_;
  std::optional<std::string> former_;
};

TEST_F(Home, ThatWasRemovedIsMadeAnewAndLinksStay) {
  Program vision = start("vision");
  const Moves moves(vision.node);
  Program motor = start("motor", {"unix:" + socket_of(vision)});
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(eventually([&] { return vision.node.peer_stats("motor").has_value(); }));
  const auto link = vision.node.peer_stats("motor").value();

  remove_run();
  ASSERT_TRUE(eventually([&] { return fs::exists(socket_of(vision)); }));
  const auto moved = moves.wait_for(1);
  ASSERT_TRUE(moved);
  EXPECT_EQ(moved->old_directory, run());
  EXPECT_EQ(moved->new_directory, run());
  EXPECT_THAT(moved->reason, HasSubstr("removed"));
  expect_found(vision);
  EXPECT_EQ(vision.node.peer_stats("motor").value().path.kind, link.path.kind);
  ASSERT_TRUE(succeeds(publisher.publish(numbered(1), kPatience)));
  const Sample sample = subscriber.recv(kPatience).value();
  EXPECT_EQ(number_of(*sample.tensors), 1);
  EXPECT_TRUE(sample.gaps.empty());
  EXPECT_TRUE(eventually([&] { return fs::exists(socket_of(motor)); }));
}

TEST_F(Home, ThatWasMovedAwayIsMadeAnew) {
  Program vision = start("vision");
  fs::rename(run(), run() + "-away");
  ASSERT_TRUE(eventually([&] { return fs::exists(socket_of(vision)); }));
  expect_found(vision);
}

// Another process may make it first.
TEST_F(Home, ThatSomebodyElseOfThisUserMadeAnewIsTaken) {
  Program vision = start("vision");
  const std::string next = run() + "-next";
  ASSERT_EQ(mkdir(next.c_str(), 0700), 0);
  exchange(next, run());
  ASSERT_TRUE(eventually([&] { return fs::exists(socket_of(vision)); }));
  expect_found(vision);
}

// Acts as programs that remove files that have not been used for days.
TEST_F(Home, ANameThatWasRemovedComesBackAndNothingHasMoved) {
  Program vision = start("vision");
  const Moves moves(vision.node);
  const auto before = file_id(socket_of(vision));
  fs::remove(socket_of(vision));
  ASSERT_TRUE(eventually([&] {
    const auto now = file_id(socket_of(vision));
    return now && now != before;
  }));
  expect_found(vision);
  EXPECT_EQ(moves.count(), 0u);
}

TEST_F(Home, ThatIsOpenToOthersServesNobodyUntilItIsMended) {
  Program vision = start("vision");
  const Moves moves(vision.node);
  ASSERT_EQ(chmod(run().c_str(), 0777), 0);
  const auto left = moves.wait_for(1);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->old_directory, run());
  EXPECT_EQ(left->new_directory, "");
  EXPECT_THAT(left->reason, HasSubstr("0777"));
  EXPECT_TRUE(fs::is_empty(run()));
  ASSERT_EQ(chmod(run().c_str(), 0700), 0);
  const auto back = moves.wait_for(2);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->old_directory, "");
  EXPECT_EQ(back->new_directory, run());
  expect_found(vision);
}

TEST_F(Home, ThatAnotherUserHasIsNotServed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to give a directory away";
  Program vision = start("vision");
  const Moves moves(vision.node);
  const std::string theirs = run() + "-theirs";
  ASSERT_EQ(mkdir(theirs.c_str(), 0700), 0);
  ASSERT_EQ(chown(theirs.c_str(), 65534, 65534), 0);
  exchange(theirs, run());
  const auto left = moves.wait_for(1);
  ASSERT_TRUE(left);
  EXPECT_EQ(left->new_directory, "");
  EXPECT_THAT(left->reason, HasSubstr("belongs to uid 65534"));
  EXPECT_TRUE(fs::is_empty(run()));
  fs::remove(run());
  const auto back = moves.wait_for(2);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->new_directory, run());
  expect_found(vision);
}

TEST_F(Home, ANodeThatLeavesTakesItsNameAlongFromWhereItIs) {
  {
    Program vision = start("vision");
    remove_run();
    ASSERT_TRUE(eventually([&] { return fs::exists(socket_of(vision)); }));
  }
  EXPECT_TRUE(fs::is_empty(run()));
}

// A user without files, who has no login at first.
TEST_F(Home, APlaceThatComesEarlierIsMovedTo) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become a user without files";
  const auto uid = static_cast<uid_t>(57000 + getpid() % 4000);
  const std::string user_base = "/run/user/" + std::to_string(uid);
  const std::string in_tmp = "/tmp/tendon-" + std::to_string(uid);
  ASSERT_FALSE(fs::exists(user_base) || fs::exists(in_tmp)) << "somebody has that uid";
  unsetenv("TENDON_RUNTIME_DIR");
  // Runs in a child, so that no thread of this process looks while it is root.
  const auto as_root = [](auto act) {
    return exited_with(run_in_child([&] { return seteuid(0) == 0 && act() ? 0 : 1; }), 0);
  };
  ASSERT_EQ(seteuid(uid), 0);
  {
    Program vision = start("vision");
    const Moves moves(vision.node);
    EXPECT_TRUE(fs::exists(socket_of(vision, in_tmp)));
    EXPECT_TRUE(as_root([&] {
      return fs::create_directories(user_base) && chown(user_base.c_str(), uid, uid) == 0;
    }));
    const auto moved = moves.wait_for(1);
    EXPECT_TRUE(moved);
    if (moved) {
      EXPECT_EQ(moved->old_directory, in_tmp);
      EXPECT_EQ(moved->new_directory, user_base + "/tendon");
    }
    EXPECT_TRUE(fs::exists(socket_of(vision, user_base + "/tendon")));
    EXPECT_TRUE(fs::is_empty(in_tmp));
    // Then the user logs out.
    EXPECT_TRUE(as_root([&] { return fs::remove_all(user_base) > 0; }));
    EXPECT_TRUE(moves.wait_for(2));
    EXPECT_TRUE(eventually([&] { return fs::exists(socket_of(vision, in_tmp)); }));
  }
  ASSERT_EQ(seteuid(0), 0);
  std::error_code ignored;
  fs::remove_all(user_base, ignored);
  fs::remove_all(in_tmp, ignored);
}

}  // namespace
}  // namespace tendon::test
