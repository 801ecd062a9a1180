// SPDX-License-Identifier: Apache-2.0
// Members of a group that die, stop and resume, as processes. Survivors learn the name of the
// member, continue without it, and compute correct results.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/failpoint.hpp"
#include "process/peer.hpp"
#include "support/expect.hpp"
#include "support/pipe_pair.hpp"
#include "support/scratch_dir.hpp"

namespace tendon::test {
namespace {

/// Members that are processes; one of them may have failpoints.
class Members {
 public:
  struct Options {
    std::uint32_t count = 3;
    std::string transport = "shm";
    std::uint32_t victim = 0;
    std::string failpoints = {};
    std::string collectives = {};  ///< the value of TENDON_COLLECTIVES
    std::string others_failpoints = {};
    std::string others_report = {};  ///< the value of TENDON_FAILPOINT_REPORT
    std::string patience_ms = {};    ///< for join
  };
  explicit Members(const Options& options) : options_(options) {
    static int number = 0;
    address_ = "unix:@tendon-members-" + std::to_string(getpid()) + "-" + std::to_string(++number);
    for (std::uint32_t rank = 0; rank < options.count; ++rank) members_.push_back(start(rank));
    for (const auto& member : members_) EXPECT_TRUE(is_ok(member->line()));
  }
  Peer& operator[](std::uint32_t rank) { return *members_[rank]; }
  /// Starts another process with this rank; returns the process that had it before.
  std::unique_ptr<Peer> replace(std::uint32_t rank, const std::string& failpoints = {},
                                const std::string& patience_ms = {}) {
    options_.victim = rank;
    options_.failpoints = failpoints;
    options_.patience_ms = patience_ms;
    return std::exchange(members_[rank], start(rank));
  }
  void tell_all(const std::string& command) {
    for (const auto& member : members_) member->tell(command);
  }
  void tell_others(std::uint32_t but, const std::string& command) {
    for (std::uint32_t rank = 0; rank < members_.size(); ++rank)
      if (rank != but) members_[rank]->tell(command);
  }
  template <class F>
  void each_other(std::uint32_t but, F look) {
    for (std::uint32_t rank = 0; rank < members_.size(); ++rank)
      if (rank != but) look(*members_[rank]);
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(members_.size()); }

 private:
  std::unique_ptr<Peer> start(std::uint32_t rank) {
    Peer::Options peer;
    peer.program = "member_main";
    peer.arguments = {address_, std::to_string(rank), std::to_string(options_.count),
                      options_.transport};
    if (!options_.collectives.empty())
      peer.environment["TENDON_COLLECTIVES"] = options_.collectives;
    if (!options_.patience_ms.empty())
      peer.environment["MEMBER_PATIENCE_MS"] = options_.patience_ms;
    if (rank == options_.victim && !options_.failpoints.empty())
      peer.environment["TENDON_FAILPOINTS"] = options_.failpoints;
    if (rank != options_.victim && !options_.others_failpoints.empty()) {
      peer.environment["TENDON_FAILPOINTS"] = options_.others_failpoints;
      peer.environment["TENDON_FAILPOINT_REPORT"] = options_.others_report;
    }
    return std::make_unique<Peer>(std::move(peer));
  }

  Options options_;
  std::string address_;
  std::vector<std::unique_ptr<Peer>> members_;
};

// All members except `gone` continue.
void go_on_without(Members& members, std::uint32_t gone) {
  const std::string left = std::to_string(members.count() - 1);
  members.tell_others(gone, "shrink");
  members.each_other(gone, [&](Peer& member) { EXPECT_EQ(member.line(), "ok " + left); });
  members.tell_others(gone, "loop 20 5000");
  members.each_other(gone, [](Peer& member) { EXPECT_TRUE(is_ok(member.line())); });
}

std::size_t line_count(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

struct Death {
  const char* name;
  const char* transport;
  const char* failpoint;
  int passage;
  std::int64_t count;  ///< elements of 8 bytes: the number chooses the algorithm
};
std::ostream& operator<<(std::ostream& out, const Death& death) { return out << death.name; }

class GroupDeath : public ProcessTest, public testing::WithParamInterface<Death> {};

TEST_P(GroupDeath, OfEachMember) {
  if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  const Death& death = GetParam();
  for (std::uint32_t victim = 0; victim < 3; ++victim) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    Members members(
        {.transport = death.transport,
         .victim = victim,
         .failpoints = std::string(death.failpoint) + "=kill@" + std::to_string(death.passage)});
    members.tell_all("loop 200 " + std::to_string(death.count));
    members.each_other(victim, [&](Peer& member) {
      EXPECT_TRUE(is_error(member.line(), "peer_lost", "place " + std::to_string(victim)));
    });
    EXPECT_EQ(members[victim].wait(), SIGKILL);
    go_on_without(members, victim);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Phases, GroupDeath,
    testing::Values(
        Death{"small_before_it_publishes", "shm", "group.board.before_publish", 7, 1},
        Death{"large_before_it_publishes", "shm", "group.board.before_publish", 5, 200'000},
        Death{"large_after_it_published", "shm", "group.board.after_publish", 6, 200'000},
        Death{"links_before_a_send", "tcp", "group.script.before_send", 9, 100'000},
        Death{"links_after_a_receive", "tcp", "group.script.after_receive", 9, 100'000},
        Death{"links_small", "tcp", "group.script.before_send", 5, 1}),
    [](const auto& tested) { return std::string(tested.param.name); });

class GroupOfProcesses : public ProcessTest {};

TEST_F(GroupOfProcesses, AForcedAlgorithmHoldsWhetherACallBlocksOrNot) {
  for (const char* collectives :
       {"board_all_reduce=distributed", "board_all_reduce=pull", "pull_min=128,staging=cached",
        "staging=streaming", "symmetric_max=0"}) {
    SCOPED_TRACE(collectives);
    Members members({.collectives = collectives});
    for (const char* command : {"mixed 50 1", "mixed 50 500", "mixed 20 5000"}) {
      members.tell_all(command);
      for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(members[rank].line(), "ok") << rank;
    }
  }
}

TEST_F(GroupOfProcesses, OverLinksEveryForcedAlgorithmIsRight) {
  for (const char* algorithm : {"ring", "recursive_doubling", "halving_doubling", "two_level"}) {
    SCOPED_TRACE(algorithm);
    Members members({.transport = "tcp", .collectives = std::string("all_reduce=") + algorithm});
    for (const char* command : {"loop 5 1", "loop 5 100000"}) {
      members.tell_all(command);
      for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(members[rank].line(), "ok") << rank;
    }
  }
}

TEST_F(GroupOfProcesses, AMemberThatDiesBetweenOperationsIsNamedByTheNext) {
  Members members({});
  members.tell_all("loop 5 1000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  members[1].kill_and_wait();
  members.tell_others(1, "loop 5 1000");
  members.each_other(
      1, [](Peer& member) { EXPECT_TRUE(is_error(member.line(), "peer_lost", "place 1")); });
  go_on_without(members, 1);
}

TEST_F(GroupOfProcesses, AStoppedMemberIsWaitedForAndGoesOn) {
  Members members({});
  members[2].signal(SIGSTOP);
  members.tell_all("loop 50 3000");
  members[2].signal(SIGCONT);
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
}

TEST_F(GroupOfProcesses, AHungMemberIsNamedAndFenced) {
  Members members({});
  members.tell_all("loop 5 1000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  members[0].signal(SIGSTOP);
  members.tell_others(0, "reduce 1000 4000");
  members.each_other(0, [](Peer& member) {
    // The member that times out second learns about the first.
    const std::string answer = member.line();
    EXPECT_TRUE(is_error(answer, "timeout", "place 0")) << answer;
  });
  // The stopped member is not dead: the others continue without it only on request.
  members.tell_others(0, "shrink kill");
  members.each_other(0, [](Peer& member) { EXPECT_EQ(member.line(), "ok 2"); });
  EXPECT_EQ(members[0].wait(), SIGKILL);
  members.tell_others(0, "loop 20 100000");
  members.each_other(0, [](Peer& member) { EXPECT_TRUE(is_ok(member.line())); });
}

TEST_F(GroupOfProcesses, AMemberThatRunsAndDoesNotComeIsFenced) {
  Members members({});
  members.tell_all("loop 5 1000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  members.tell_others(2, "shrink kill");
  members.each_other(2, [](Peer& member) { EXPECT_EQ(member.line(), "ok 2"); });
  EXPECT_EQ(members[2].wait(), SIGKILL);
}

// The member shows signs of life, and may be on its way.
TEST_F(GroupOfProcesses, AMemberThatRunsIsSparedByADeadlineUnderASecond) {
  Members members({});
  members.tell_all("loop 5 1000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  members.tell_others(2, "shrink kill_once 500");
  members.each_other(2, [](Peer& member) {
    const std::string answer = member.line();
    EXPECT_TRUE(is_error(answer, "timeout", "waited for, for 1 s")) << answer;
  });
  members.tell_all("shrink");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(members[rank].line(), "ok 3") << rank;
}

// A second without a sign of life is enough, however short the deadline.
TEST_F(GroupOfProcesses, AStoppedMemberIsKilledByADeadlineUnderASecond) {
  Members members({});
  members.tell_all("loop 5 1000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  members[2].signal(SIGSTOP);
  members.tell_others(2, "shrink kill 500");  // again, until it is silent
  members.each_other(2, [](Peer& member) { EXPECT_EQ(member.line(), "ok 2"); });
  EXPECT_EQ(members[2].wait(), SIGKILL);
}

TEST_F(GroupOfProcesses, ARebuildNamesTheHungMemberThatItKilled) {
  Members members({.count = 2});
  members.tell_all("loop 5 1000");
  for (std::uint32_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  members[1].signal(SIGSTOP);
  members[0].tell("rebuild 6000 kill");
  const std::string answer = members[0].line();
  EXPECT_TRUE(is_error(answer, "timeout", "killed at the deadline: place 1")) << answer;
  EXPECT_EQ(members[1].wait(), SIGKILL);
  members[0].tell("shrink");
  EXPECT_EQ(members[0].line(), "ok 1");
}

// A hung member also blocks the agreement on the remaining members, which is the first step.
TEST_F(GroupOfProcesses, AHungMemberThatHasToLeadIsFenced) {
  Members members({.count = 4});
  members.tell_all("loop 5 1000");
  for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  members[0].signal(SIGSTOP);
  members[3].kill_and_wait();
  for (const std::uint32_t rank : {1u, 2u}) members[rank].tell("shrink kill");
  for (const std::uint32_t rank : {1u, 2u}) EXPECT_EQ(members[rank].line(), "ok 2");
  EXPECT_EQ(members[0].wait(), SIGKILL);
  for (const std::uint32_t rank : {1u, 2u}) members[rank].tell("loop 20 1000");
  for (const std::uint32_t rank : {1u, 2u}) EXPECT_TRUE(is_ok(members[rank].line()));
}

// A member that waits for the hung one is not hung itself, however long others have waited for it.
TEST_F(GroupOfProcesses, ALeaderThatWaitsForAHungMemberIsNotFenced) {
  Members members({.count = 4});
  members.tell_all("loop 5 1000");
  for (std::uint32_t rank = 0; rank < 4; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  members[2].signal(SIGSTOP);
  members[3].kill_and_wait();
  members[1].tell("shrink kill");
  members[0].tell("loop 1 1000");  // it joins the agreement later
  EXPECT_TRUE(is_error(members[0].line(), "peer_lost", "place 3"));
  members[0].tell("shrink kill");
  for (const std::uint32_t rank : {0u, 1u}) EXPECT_EQ(members[rank].line(), "ok 2");
  EXPECT_EQ(members[2].wait(), SIGKILL);
}

// The kernel closes the sockets of a large process long before it reports that the process is dead.
TEST_F(GroupOfProcesses, WhoIsProvedDeadOnlyAfterItsSocketsClosedIsLeftOut) {
  for (const std::uint32_t count : {2u, 3u}) {
    Members members({.count = count});
    members.tell_all("loop 5 1000");
    for (std::uint32_t rank = 0; rank < count; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
    for (std::uint32_t rank = 1; rank < count; ++rank) {
      members[rank].tell("mute");
      EXPECT_TRUE(is_ok(members[rank].line()));
    }
    members[0].tell("reduce 1000 60000");
    EXPECT_TRUE(is_error(members[0].line(), "peer_lost", "without a goodbye"));
    members[0].tell("shrink");
    for (std::uint32_t rank = 1; rank < count; ++rank) members[rank].signal(SIGKILL);
    EXPECT_EQ(members[0].line(), "ok 1");
    members[0].tell("loop 5 1000");
    EXPECT_TRUE(is_ok(members[0].line()));
  }
}

// The victim said that it is ready for the next epoch, but its memory for that epoch never arrived.
TEST_F(GroupOfProcesses, WhoDiesBeforeItsBoardIsShownHoldsNobodyUp) {
  if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  for (std::uint32_t victim = 0; victim < 3; ++victim) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    const ScratchDir reports;
    const std::filesystem::path report = reports.path() / "ready";
    Members members({.count = 4,
                     .victim = victim,
                     .failpoints = "group.board.before_show=error@2,group.epoch.after_ready=kill@2",
                     .others_failpoints = "group.epoch.after_ready=error@2",
                     .others_report = report});
    members[3].signal(SIGKILL);
    EXPECT_EQ(members[3].wait(), SIGKILL);
    std::vector<std::uint32_t> left = {0, 1, 2};
    std::erase(left, victim);
    for (const std::uint32_t rank : left) members[rank].tell("shrink");
    // Both wait only for the victim when it says that it is ready.
    EXPECT_TRUE(eventually([&] { return line_count(report) == 2; }));
    members[victim].tell("shrink");
    for (const std::uint32_t rank : left) EXPECT_EQ(members[rank].line(), "ok 2");
    EXPECT_EQ(members[victim].wait(), SIGKILL);
    for (const char* const command : {"loop 20 1000", "loop 5 100000"}) {
      for (const std::uint32_t rank : left) members[rank].tell(command);
      for (const std::uint32_t rank : left) EXPECT_TRUE(is_ok(members[rank].line()));
    }
  }
}

TEST_F(GroupOfProcesses, AZombieOfAnEarlierEpochDoesNothing) {
  // Over sockets silence is enough: the lease lapses, the others continue, the zombie resumes.
  Members members({.count = 3, .transport = "tcp"});
  members.tell_all("loop 5 1000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  members[2].signal(SIGSTOP);
  members.tell_others(2, "reduce 100000 60000");
  members.each_other(
      2, [](Peer& member) { EXPECT_TRUE(is_error(member.line(), "peer_lost", "place 2")); });
  go_on_without(members, 2);
  members[2].signal(SIGCONT);
  members[2].tell("loop 5 100000");
  EXPECT_TRUE(is_error(members[2].line(), "peer_lost"));
  members.tell_others(2, "loop 50 1000");
  members.each_other(2, [](Peer& member) { EXPECT_TRUE(is_ok(member.line())); });
  members[2].tell("shrink none 500");
  const std::string alone = members[2].line();
  EXPECT_TRUE(alone.starts_with("error ")) << alone;
}

void work_together(Members& members) {
  for (const char* const command : {"loop 20 1000", "loop 5 100000"}) {
    members.tell_all(command);
    for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(members[rank].line(), "ok") << rank;
  }
}

// All members except `place` wait for the new process there; then all work together.
void rebuild_with(Members& members, std::uint32_t place) {
  members.tell_others(place, "rebuild");
  members.each_other(place, [](Peer& member) { EXPECT_EQ(member.line(), "ok 3"); });
  EXPECT_EQ(members[place].line(), "ok joined");
  work_together(members);
}

class GroupRebuilt : public ProcessTest, public testing::WithParamInterface<const char*> {};

TEST_P(GroupRebuilt, AProcessTakesThePlaceOfOneThatWasKilled) {
  Members members({.transport = GetParam()});
  for (std::uint32_t victim = 0; victim < 3; ++victim) {
    SCOPED_TRACE("victim " + std::to_string(victim));
    members[victim].kill_and_wait();
    members.tell_others(victim, "loop 5 1000");
    members.each_other(victim, [&](Peer& member) {
      EXPECT_TRUE(is_error(member.line(), "peer_lost", "place " + std::to_string(victim)));
    });
    members.replace(victim);
    rebuild_with(members, victim);
  }
}

// A member's resources at the others are freed when it is replaced. Otherwise repeated replacements
// would fill their tables of descriptors and mappings.
TEST_P(GroupRebuilt, NothingIsHeldOfThoseWhoWereReplaced) {
  const bool is_shm = std::string_view(GetParam()) == "shm";
  Members members({.transport = GetParam()});
  work_together(members);
  const auto holds = [&](std::uint32_t rank, const std::string& wanted) {
    std::string held;
    EXPECT_TRUE(eventually([&] {
      held = members[rank].ask("held");
      return held == "ok " + wanted;
    })) << "rank "
        << rank << " holds '" << held << "', not " << wanted;
  };
  const std::string whole[] = {value_of(members[0].ask("held")), value_of(members[1].ask("held"))};
  for (int times = 0; times < 4; ++times) {
    SCOPED_TRACE("replaced " + std::to_string(times) + " times before");
    members[2].kill_and_wait();
    members.tell_others(2, "reduce 1000 60000");
    members.each_other(
        2, [](Peer& member) { EXPECT_TRUE(is_error(member.line(), "peer_lost", "place 2")); });
    members.replace(2);
    rebuild_with(members, 2);
    for (const std::uint32_t rank : {0u, 1u}) holds(rank, whole[rank]);
  }
  // Only the links remain, with 3 descriptors and 2 mappings each, to Contexts that live on.
  EXPECT_EQ(members[1].ask("leave"), "ok");
  if (is_shm) holds(1, "6 4");
  for (const std::uint32_t rank : {1u, 2u}) members[rank].kill_and_wait();
  EXPECT_TRUE(is_error(members[0].ask("reduce 1000 60000"), "peer_lost"));
  EXPECT_EQ(members[0].ask("leave"), "ok");
  // Data that arrived over sockets lies in the Context's own pool, which stays.
  holds(0, is_shm ? "0 0" : "1 1");
}

INSTANTIATE_TEST_SUITE_P(Paths, GroupRebuilt, testing::Values("shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

// Two of three may work on, out of reach. A process that waits for a place of theirs and leaves
// again proves nothing.
TEST_F(GroupOfProcesses, WhoWaitedForAPlaceInVainDoesNotMakeAMinorityEnough) {
  Members members({.transport = "tcp"});
  for (const std::uint32_t rank : {1u, 2u}) members[rank].signal(SIGSTOP);
  EXPECT_TRUE(is_error(members[0].ask("reduce 100000 60000"), "peer_lost"));
  const auto shrinks = [&] { return members[0].ask("shrink none 500"); };
  EXPECT_TRUE(eventually([&] { return is_error(shrinks(), "no_quorum") ? true : false; }));
  std::vector<std::unique_ptr<Peer>> stopped;
  for (const std::uint32_t rank : {1u, 2u}) {
    stopped.push_back(members.replace(rank, {}, "1000"));
    EXPECT_TRUE(is_error(members[rank].line(), "timeout"));
    members[rank].wait();
  }
  EXPECT_TRUE(is_error(shrinks(), "no_quorum"));
}

TEST_F(GroupOfProcesses, ANewcomerThatDiesBeforeItIsReadyIsReplacedToo) {
  if (!detail::failpoints_built()) GTEST_SKIP() << "built without failpoints";
  for (const std::uint32_t victim : {1u, 2u}) {
    Members members({});
    members[victim].kill_and_wait();
    members.tell_others(victim, "rebuild");
    members.replace(victim, "group.board.before_show=kill@1");
    EXPECT_EQ(members[victim].wait(), SIGKILL);  // a member of an epoch nobody has entered
    members.replace(victim);
    members.each_other(victim, [](Peer& member) { EXPECT_EQ(member.line(), "ok 3"); });
    EXPECT_EQ(members[victim].line(), "ok joined");
    members.tell_all("loop 20 1000");
    for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(is_ok(members[rank].line()));
  }
}

TEST_F(GroupOfProcesses, AZombieWhosePlaceIsTakenDoesNothing) {
  Members members({.transport = "tcp"});
  members[2].signal(SIGSTOP);
  members.tell_others(2, "reduce 100000 60000");
  members.each_other(
      2, [](Peer& member) { EXPECT_TRUE(is_error(member.line(), "peer_lost", "place 2")); });
  const auto zombie = members.replace(2);
  rebuild_with(members, 2);
  zombie->signal(SIGCONT);
  zombie->tell("loop 5 100000");
  EXPECT_TRUE(is_error(zombie->line(), "peer_lost"));
  members.tell_all("loop 50 1000");
  for (std::uint32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(members[rank].line(), "ok");
  zombie->tell("rebuild 500");
  const std::string alone = zombie->line();
  EXPECT_TRUE(alone.starts_with("error ")) << alone;
}

// Its links need a proof of this host, which is not finished then. This is no reason to stop
// trying.
TEST(MembersThatMeet, TryAgainWhenOneDiesInTheHandshake) {
  if (!detail::failpoints_built()) GTEST_SKIP() << "needs failpoints";
  const std::string address = address_of_nobody();
  const auto start = [&](const std::string& failpoints) {
    Peer::Options options;
    options.program = "member_main";
    options.arguments = {address, "0", "2", "auto"};
    options.environment = {{"TENDON_FAILPOINTS", failpoints}};
    return std::make_unique<Peer>(options);
  };
  const auto victim = start("handshake.attach=kill");
  Context context = Context::create({.name = "survivor"}).value();
  std::optional<Result<Group>> joined;
  std::thread joining([&] {
    joined = Group::join(context, Rendezvous::at(address, GroupRank{1}, 2), 2 * kPatience);
  });
  (void)victim->wait();
  const auto next = start("");
  joining.join();
  ASSERT_TRUE(succeeds(*joined));
  EXPECT_EQ((*joined)->size(), 2U);
  EXPECT_TRUE(is_ok(next->line()));
}

}  // namespace
}  // namespace tendon::test
