// SPDX-License-Identifier: Apache-2.0
// A member of a group that writes random words to the memory that it shares with the others. It has
// the same user, so it can make results wrong, make operations fail, and have a member left out. It
// must not crash the others or delay them beyond their deadlines.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "process/peer.hpp"

namespace tendon::test {
namespace {

struct Lie {
  const char* name;
  const char* aim;
  const char* collectives;  ///< the value of TENDON_COLLECTIVES
};
std::ostream& operator<<(std::ostream& out, const Lie& lie) { return out << lie.name; }

class Scribbling : public ProcessTest, public testing::WithParamInterface<Lie> {};

TEST_P(Scribbling, TheOthersLiveOn) {
  constexpr std::uint32_t kSize = 3;
  constexpr std::uint32_t kLiar = 1;
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const std::string address = "unix:@tendon-scribble-" + std::to_string(getpid());
  std::vector<std::unique_ptr<Peer>> members;
  for (std::uint32_t rank = 0; rank < kSize; ++rank) {
    Peer::Options options;
    options.program = "endure_main";
    options.arguments = {address, std::to_string(rank), std::to_string(kSize)};
    if (rank == kLiar) {
      for (const std::string& word :
           {std::string("scribble"), std::to_string(seed), std::string(GetParam().aim)})
        options.arguments.push_back(word);
    }
    options.environment["TENDON_COLLECTIVES"] = GetParam().collectives;
    members.push_back(std::make_unique<Peer>(std::move(options)));
  }
  for (const auto& member : members) ASSERT_EQ(member->line(), "ok joined");
  for (const auto& member : members) member->tell("endure 150");
  const std::vector<std::uint32_t> others = {0, 2};
  // A member that breaks its link to only one of them can have the other leave that one out.
  bool left_out = false;
  for (const std::uint32_t rank : others) {
    const std::string answer = members[rank]->line();
    EXPECT_TRUE(is_ok(answer) || answer.starts_with("error ")) << answer;
    left_out = left_out || !is_ok(answer);
  }
  members[kLiar]->kill_and_wait();
  // Between its answer and that death it may be left out too.
  for (const std::uint32_t rank : others) {
    if (left_out) break;
    const std::string answer = members[rank]->line();
    left_out = answer == "error peer_lost";
    EXPECT_TRUE(left_out || answer == "ok 2") << rank << ": " << answer;
  }
  if (!left_out) {
    // Without the liar every operation succeeds again.
    for (const std::uint32_t rank : others) members[rank]->tell("call 100");
    for (const std::uint32_t rank : others) EXPECT_EQ(members[rank]->line(), "ok 0") << rank;
  }
  for (const std::uint32_t rank : others) members[rank]->tell("quit");
  for (const std::uint32_t rank : others) EXPECT_EQ(members[rank]->wait(), 0) << rank;
}

INSTANTIATE_TEST_SUITE_P(
    Lies, Scribbling,
    testing::Values(Lie{"boards", "board", ""},
                    Lie{"boards_distributed", "board", "board_all_reduce=distributed"},
                    Lie{"pools", "board", "pull_min=128"}, Lie{"everything", "all", ""}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace tendon::test
