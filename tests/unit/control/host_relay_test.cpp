// SPDX-License-Identifier: Apache-2.0
// Tensors of a step that one worker of a host passes on to the others.
#include "control/relay/host_relay.hpp"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/map_store.hpp"

namespace tendon::test {
namespace {

using detail::HostRelay;
using detail::RelayedTensors;
using detail::RelayPlace;
using detail::TensorRelay;

constexpr std::uint64_t kLarge = 300'000;

RelayPlace place_of(std::uint32_t rank, std::uint64_t roster = 1, const std::string& run = "run") {
  return {{.run = run, .roster = roster}, {rank}};
}

/// The messages that one follower got.
struct Heard {
  std::promise<std::pair<std::uint64_t, TensorDict>> came;
  std::promise<void> ended;

  RelayedTensors::Calls calls() {
    return {.came =
                [this](std::uint64_t id, TensorDict tensors) {
                  came.set_value({id, std::move(tensors)});
                },
            .ended = [this] { ended.set_value(); }};
  }
  std::pair<std::uint64_t, TensorDict> tensors() {
    auto coming = came.get_future();
    if (coming.wait_until(Deadline(kPatience).time_point()) != std::future_status::ready) return {};
    return coming.get();
  }
  [[nodiscard]] bool has_ended() {
    return ended.get_future().wait_until(Deadline(kPatience).time_point()) ==
           std::future_status::ready;
  }
};

class Relays : public testing::Test {
 protected:
  void SetUp() override {
    Listener listener = Listener::bind(context_, "127.0.0.1:0").value();
    address_ = listener.address();
    relay_->serve(std::move(listener));
  }
  void TearDown() override { relay_->end(); }

  Pipe dial() { return Pipe::connect(other_, address_, kPatience).value(); }

  Context context_ = Context::create({.name = "first"}).value();
  Context other_ = Context::create({.name = "follower"}).value();
  std::string address_;
  std::shared_ptr<TensorRelay> relay_ =
      std::make_shared<TensorRelay>(place_of(0), std::set<GlobalRank>{{1}, {2}});
};

TEST_F(Relays, PassTensorsOnToEachFollower) {
  Heard heard[2];
  std::vector<std::shared_ptr<RelayedTensors>> followers;
  for (std::uint32_t rank : {1U, 2U}) {
    followers.push_back(std::make_shared<RelayedTensors>(place_of(rank), heard[rank - 1].calls()));
    ASSERT_TRUE(succeeds(followers.back()->follow(dial(), kPatience)));
  }
  relay_->pass_on(7, patterned(1, kLarge));
  for (Heard& one : heard) {
    const auto [id, tensors] = one.tensors();
    EXPECT_EQ(id, 7U);
    EXPECT_TRUE(is_patterned(tensors, 1, kLarge));
  }
  EXPECT_FALSE(followers.front()->has_ended());
  relay_->end();
  for (Heard& one : heard) EXPECT_TRUE(one.has_ended());
  EXPECT_TRUE(followers.front()->has_ended());
}

TEST_F(Relays, LetInOnlyFollowersOfTheirRosterAndEachOnce) {
  const auto refused = [&](const RelayPlace& place) {
    const auto stranger = std::make_shared<RelayedTensors>(place, RelayedTensors::Calls{});
    return fails_with(stranger->follow(dial(), kPatience), ErrorCode::permission_denied);
  };
  EXPECT_TRUE(refused(place_of(1, 2)));
  EXPECT_TRUE(refused(place_of(1, 1, "another run")));
  EXPECT_TRUE(refused(place_of(0)));
  EXPECT_TRUE(refused(place_of(3)));
  Heard heard;
  const auto follower = std::make_shared<RelayedTensors>(place_of(1), heard.calls());
  ASSERT_TRUE(succeeds(follower->follow(dial(), kPatience)));
  EXPECT_TRUE(refused(place_of(1)));
  relay_->pass_on(1, patterned(1, kLarge));
  EXPECT_EQ(heard.tensors().first, 1U);
}

TEST_F(Relays, EndThePipeOfAPeerThatSendsAnythingElse) {
  Pipe bytes = dial();
  ASSERT_TRUE(succeeds(bytes.send(as_bytes("no word"), {}, kPatience)));
  EXPECT_FALSE(bytes.recv(RecvMode::copy, kPatience).has_value());
  Pipe tensors = dial();
  ASSERT_TRUE(succeeds(tensors.send(patterned(1, 10), kPatience)));
  EXPECT_TRUE(fails_with(tensors.recv(RecvMode::copy, kPatience), ErrorCode::protocol_violation));
}

TEST_F(Relays, AFollowerWaitsForItsWelcomeUntilTheDeadline) {
  Listener silent = Listener::bind(context_, "127.0.0.1:0").value();
  const auto follower = std::make_shared<RelayedTensors>(place_of(1), RelayedTensors::Calls{});
  EXPECT_TRUE(fails_with(
      follower->follow(Pipe::connect(other_, silent.address(), kPatience).value(), kBriefly),
      ErrorCode::timeout));
}

TEST_F(Relays, AFollowerEndsThePipeOfAFirstWorkerThatSaysAnythingElse) {
  Listener strange = Listener::bind(context_, "127.0.0.1:0").value();
  const auto follower = std::make_shared<RelayedTensors>(place_of(1), RelayedTensors::Calls{});
  Pipe out = Pipe::connect(other_, strange.address(), kPatience).value();
  Pipe in = strange.accept(kPatience).value();
  ASSERT_TRUE(succeeds(in.send(patterned(1, 10), kPatience)));
  EXPECT_FALSE(follower->follow(std::move(out), kPatience).has_value());
}

/// Workers of one host that meet through a store.
class HostRelays : public testing::Test {
 protected:
  struct Worker {
    Context context;
    Heard heard;
    std::unique_ptr<HostRelay> relay;
  };

  Worker& add(std::uint32_t rank) {
    auto worker = std::make_unique<Worker>(Context::create({}).value());
    worker->relay = std::make_unique<HostRelay>(place_of(rank), worker->heard.calls());
    workers_.push_back(std::move(worker));
    return *workers_.back();
  }
  /// All members share memory, except those of rank `apart` and above.
  void meet(Worker& worker, std::uint32_t rank, std::uint32_t size, std::uint32_t apart,
            Deadline deadline) {
    std::vector<GroupMember> members(size);
    for (std::uint32_t i = 0; i < size; ++i) {
      members[i].rank = {i};
      members[i].place = i;
      if (i != rank) members[i].path = Path{i < apart ? PathKind::shm : PathKind::tcp, "a test"};
    }
    worker.relay->meet(detail::ContextCore::of(worker.context), store_, members, deadline);
  }

  MapStore store_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

TEST_F(HostRelays, TheLowestRankOfAHostPassesOn) {
  Worker& first = add(0);
  Worker& second = add(1);
  Worker& elsewhere = add(2);
  meet(first, 0, 3, 2, kPatience);
  meet(second, 1, 3, 2, kPatience);
  meet(elsewhere, 2, 3, 0, kPatience);
  EXPECT_FALSE(first.relay->relay());
  EXPECT_EQ(second.relay->relay(), GlobalRank{0});
  EXPECT_FALSE(elsewhere.relay->relay());
  first.relay->pass_on(4, patterned(2, kLarge));
  EXPECT_TRUE(is_patterned(second.heard.tensors().second, 2, kLarge));
  EXPECT_FALSE(second.relay->why_none_come());
  first.relay = nullptr;
  EXPECT_TRUE(second.heard.has_ended());
  EXPECT_TRUE(second.relay->why_none_come());
}

TEST_F(HostRelays, AFollowerThatFindsNoFirstOneLeavesItToTheController) {
  Worker& alone = add(1);
  meet(alone, 1, 2, 2, kBriefly);
  EXPECT_FALSE(alone.relay->relay());
}

TEST_F(HostRelays, WhatTheStoreSaysNamesNoOtherPlace) {
  for (const char* const name : {"../elsewhere", "", "0123456789abcdef0123456789abcdef"}) {
    Worker& follower = add(1);
    ASSERT_TRUE(succeeds(store_.set("relay/1/0", name, kPatience)));
    meet(follower, 1, 2, 2, kPatience);
    EXPECT_FALSE(follower.relay->relay()) << name;
  }
}

}  // namespace
}  // namespace tendon::test
