// SPDX-License-Identifier: Apache-2.0
// The rosters of a controller, driven only by words: no pipe, no socket, no clock.
#include "control/machine/roster_machine.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/control_team.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::RosterAction;
using detail::RosterMachine;
using detail::SeatState;
using Kind = RosterAction::Kind;

constexpr std::uint64_t kSchema = 7;

/// Two workers in one tensor group.
class Rosters : public testing::Test {
 protected:
  static v1::Join join_of(std::uint32_t rank) {
    v1::Join join;
    join.set_version(detail::kControlVersion);
    join.set_rank(rank);
    join.set_tensor_parallel_size(2);
    join.set_pipeline_parallel_size(1);
    join.set_kv_parallel_size(1);
    join.set_incarnation(100 + rank);
    join.set_payload_version(kSchema);
    return join;
  }
  static PeerIdentity peer(const std::string& name) {
    PeerIdentity peer;
    peer.name = name;
    return peer;
  }
  Result<v1::Word> joins(std::uint32_t rank) {
    return machine_.join(join_of(rank), peer("worker " + std::to_string(rank)), now_);
  }
  v1::Word word() { return detail::word_of(machine_.id()); }
  void hear(std::uint32_t rank, v1::Word word) { machine_.hear({rank}, std::move(word), now_); }
  void hear_ready(std::uint32_t rank, std::uint64_t epoch = 1) {
    v1::Word ready = word();
    ready.mutable_ready()->set_group_epoch(epoch);
    ready.mutable_ready()->set_members(2);
    hear(rank, ready);
  }
  void hear_failed(std::uint32_t rank, const std::string& why) {
    v1::Word failed = word();
    failed.mutable_step_failed()->set_error(why);
    hear(rank, failed);
  }
  void hear_applied(std::uint32_t rank, std::uint64_t sequence) {
    v1::Word applied = word();
    applied.mutable_inputs_applied()->set_sequence(sequence);
    hear(rank, applied);
  }
  /// The actions of one kind that the machine wants, by rank.
  std::vector<std::pair<std::uint32_t, v1::Word>> done(Kind kind) {
    std::vector<std::pair<std::uint32_t, v1::Word>> found;
    for (RosterAction& action : machine_.take_actions())
      if (action.kind == kind) found.emplace_back(action.rank.value, std::move(action.word));
    return found;
  }
  void run() {
    for (const std::uint32_t rank : {0U, 1U}) ASSERT_TRUE(succeeds(joins(rank)));
    machine_.open({}, now_);
    for (const std::uint32_t rank : {0U, 1U}) hear_ready(rank);
    ASSERT_TRUE(succeeds(machine_.run(now_)));
    (void)machine_.take_actions();
  }
  void give(std::uint64_t schedule_id) {
    machine_.given(
        schedule_id,
        detail::encode(machine_.next_inputs({.schedule_id = schedule_id, .payload = {}})), now_);
  }
  v1::StepMessage outputs(std::uint64_t sequence, std::uint64_t schedule_id) {
    v1::StepMessage message = detail::message_of(machine_.id(), v1::FLOW_STEP_OUTPUTS, sequence);
    message.set_schedule_id(schedule_id);
    message.set_incarnation(100);
    return message;
  }
  void take(std::vector<v1::StepMessage> messages) {
    machine_.take(machine_.id().roster, {.messages = std::move(messages), .refused = 0});
  }
  [[nodiscard]] SeatState seat(std::uint32_t rank) const {
    return machine_.seats().at({rank}).state;
  }

  RosterMachine::Time now_{1h};
  RosterMachine machine_{layout_of(2, 1, 1),
                         {.payload_version = kSchema,
                          .idle_heartbeat = 1234ms,
                          .step_heartbeat = 56ms,
                          .hang_timeout = 10s},
                         "run"};
};

TEST_F(Rosters, AJoinIsWelcomedOnceAndRefusedWhereItDoesNotFit) {
  const auto welcome = joins(1);
  ASSERT_TRUE(succeeds(welcome));
  EXPECT_EQ(welcome->run_id(), "run");
  EXPECT_EQ(welcome->welcome().idle_heartbeat_ms(), 1234U);
  EXPECT_EQ(welcome->welcome().step_heartbeat_ms(), 56U);
  EXPECT_EQ(seat(1), SeatState::waiting);
  EXPECT_TRUE(fails_with(joins(1), ErrorCode::invalid_argument, "rank 1 (worker 1"));

  const std::map<std::string, void (*)(v1::Join&)> wrong = {
      {"version 9", [](v1::Join& join) { join.set_version(9); }},
      {"tensor 4", [](v1::Join& join) { join.set_tensor_parallel_size(4); }},
      {"kv 3", [](v1::Join& join) { join.set_kv_parallel_size(3); }},
      {"rank 2 of 2", [](v1::Join& join) { join.set_rank(2); }},
      {"the version 8", [](v1::Join& join) { join.set_payload_version(8); }}};
  for (const auto& [why, change] : wrong) {
    v1::Join join = join_of(0);
    change(join);
    const auto refused = machine_.join(join, {}, now_);
    ASSERT_FALSE(refused.has_value()) << why;
    EXPECT_NE(refused.error().detail.find(why), std::string::npos) << refused.error().detail;
  }
  EXPECT_EQ(seat(0), SeatState::empty);
  EXPECT_TRUE(machine_.take_actions().empty());
}

TEST_F(Rosters, RunWhenAllAreReadyInOneEpoch) {
  for (const std::uint32_t rank : {0U, 1U}) ASSERT_TRUE(succeeds(joins(rank)));
  EXPECT_EQ(machine_.error("test").code, ErrorCode::roster_closed);
  machine_.open({.inputs = "ipc:i", .outputs = "ipc:o", .microbatches = "ipc:m", .server_key = "k"},
                now_);
  EXPECT_EQ(machine_.state(), RosterState::forming);
  const auto said = done(Kind::say);
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[1].first, 1U);
  EXPECT_EQ(said[1].second.roster(), 1U);
  EXPECT_EQ(said[1].second.rebuild().outputs_endpoint(), "ipc:o");
  const v1::StepMessage probe = machine_.probe();
  EXPECT_EQ(probe.flow(), v1::FLOW_PROBE);
  EXPECT_EQ(machine_.probe().nonce(), probe.nonce() + 1);

  v1::Word outdated = word();
  outdated.set_roster(0);
  outdated.mutable_ready();
  hear(0, outdated);
  EXPECT_EQ(seat(0), SeatState::forming);
  hear_ready(0);
  hear_ready(1, 2);
  EXPECT_TRUE(fails_with(machine_.run(now_), ErrorCode::mismatch, "in epoch 2"));
  EXPECT_EQ(machine_.state(), RosterState::closed);
  EXPECT_EQ(done(Kind::say).size(), 2U);
  for (const std::uint32_t rank : {0U, 1U}) hear_failed(rank, "the roster is over");
  EXPECT_TRUE(machine_.seats().all(SeatState::waiting));
  machine_.open({}, now_);
  for (const std::uint32_t rank : {0U, 1U}) hear_ready(rank, 3);
  EXPECT_TRUE(succeeds(machine_.run(now_)));
  EXPECT_EQ(machine_.state(), RosterState::running);
  EXPECT_EQ(machine_.status(now_).roster, 2U);
}

TEST_F(Rosters, ALossClosesTheRosterAndTheOthersAreTold) {
  run();
  give(1);
  machine_.lost({0}, {ErrorCode::peer_lost, "test", "killed"}, now_);
  EXPECT_EQ(machine_.state(), RosterState::closed);
  EXPECT_EQ(seat(0), SeatState::empty);
  EXPECT_EQ(seat(1), SeatState::failing);
  const auto told = done(Kind::say);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0].first, 1U);
  EXPECT_NE(told[0].second.roster_closed().reason().find("rank 0 (worker 0"), std::string::npos);
  EXPECT_TRUE(machine_.steps().is_idle()) << "a step of a roster that is over is void";
  EXPECT_EQ(machine_.error("test").code, ErrorCode::worker_lost);
  // The end of a worker that no longer takes part changes nothing.
  machine_.lost({1}, {ErrorCode::end_of_stream, "test", ""}, now_);
  EXPECT_NE(machine_.error("test").detail.find("killed"), std::string::npos);
}

TEST_F(Rosters, ADeathSoonAfterAFailureIsItsReason) {
  run();
  hear_failed(1, "rank 0 is gone");
  EXPECT_EQ(seat(1), SeatState::waiting);
  EXPECT_NE(machine_.error("test").detail.find("failed: rank 0 is gone"), std::string::npos);
  ASSERT_TRUE(machine_.cause_may_come_until());
  EXPECT_GT(*machine_.cause_may_come_until(), now_);
  machine_.lost({0}, {ErrorCode::peer_lost, "test", "killed"}, now_);
  EXPECT_FALSE(machine_.cause_may_come_until());
  EXPECT_NE(machine_.error("test").detail.find("killed"), std::string::npos);
}

TEST_F(Rosters, StepsAreGivenOutAsFarAsEachRankTakesThem) {
  run();
  EXPECT_EQ(machine_.why_no_room(), "");
  give(1);
  give(2);
  EXPECT_NE(machine_.why_no_room().find("2 steps are in flight"), std::string::npos);
  take({outputs(1, 1)});
  EXPECT_TRUE(machine_.steps().is_complete(1));
  EXPECT_NE(machine_.why_no_room().find("rank 1 has taken 0 of the 2 steps"), std::string::npos);
  hear_applied(1, 1);
  EXPECT_EQ(machine_.why_no_room(), "");
  EXPECT_EQ(machine_.inputs().first_kept(), 1U) << "rank 0 has not said that it has them";
  hear_applied(0, UINT64_MAX);
  EXPECT_EQ(machine_.inputs().first_kept(), 2U) << "a lie frees nothing that another one needs";
  EXPECT_EQ(machine_.status(now_).workers[0].applied_inputs, 2U) << "more were not sent";
  EXPECT_EQ(machine_.status(now_).steps_in_flight, std::vector<std::uint64_t>{2});
}

TEST_F(Rosters, OutputsAreTakenOnceInOrderAndAskedForWhenLost) {
  run();
  give(1);
  give(2);
  take({outputs(2, 2)});
  const auto asked = done(Kind::say);
  ASSERT_EQ(asked.size(), 1U);
  EXPECT_EQ(asked[0].second.resend_request().first(), 1U);
  EXPECT_EQ(asked[0].second.resend_request().last(), 1U);
  EXPECT_FALSE(machine_.steps().is_complete(2));
  v1::Word resent = word();
  *resent.mutable_resent() = outputs(1, 1);
  hear(0, resent);
  EXPECT_TRUE(machine_.steps().is_complete(1));
  EXPECT_TRUE(machine_.steps().is_complete(2));
  take({outputs(1, 1)});
  hear(1, resent);  // rank 1 did not send it
  v1::StepMessage stranger = outputs(3, 2);
  stranger.set_incarnation(5);
  take({stranger});
  machine_.take(machine_.id().roster + 1, {.messages = {outputs(3, 2)}, .refused = 1});
  const FlowStats& stats = machine_.stats();
  EXPECT_EQ(stats.received, 2U);
  EXPECT_EQ(stats.parked, 1U);
  EXPECT_EQ(stats.doubled, 1U);
  EXPECT_EQ(stats.refused, 3U);
}

TEST_F(Rosters, ARequestForInputsIsPassedOnWhereItMayBeMade) {
  run();
  give(1);
  v1::Word request = word();
  request.mutable_resend_request()->set_flow(v1::FLOW_STEP_INPUTS);
  request.mutable_resend_request()->set_first(1);
  hear(1, request);
  const auto again = done(Kind::send_again);
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].first, 1U);
  EXPECT_EQ(again[0].second.resend_request().first(), 1U);
  request.mutable_resend_request()->set_flow(v1::FLOW_STEP_OUTPUTS);
  hear(1, request);
  request.set_roster(5);
  hear(1, request);
  EXPECT_TRUE(machine_.take_actions().empty());
  EXPECT_EQ(machine_.stats().refused, 1U);
  machine_.sent_again(3);
  EXPECT_EQ(machine_.stats().resent, 3U);
}

TEST_F(Rosters, OnePipeForTensorsIsForAWorkerThatEnters) {
  for (const std::uint32_t rank : {0U, 1U}) ASSERT_TRUE(succeeds(joins(rank)));
  v1::Word join = word();
  join.mutable_relay_join()->set_rank(1);
  EXPECT_FALSE(machine_.join_tensors(join, peer("worker 1")).has_value()) << "it enters none yet";
  machine_.open({}, now_);
  EXPECT_FALSE(machine_.join_tensors(join, peer("worker 1")).has_value()) << "of another roster";
  join = word();
  join.mutable_relay_join()->set_rank(1);
  PeerIdentity other = peer("worker 1");
  other.context.bytes[0] = std::byte{1};
  EXPECT_FALSE(machine_.join_tensors(join, other).has_value()) << "another process";
  const auto welcome = machine_.join_tensors(join, peer("worker 1"));
  ASSERT_TRUE(succeeds(welcome));
  EXPECT_TRUE(welcome->has_relay_welcome());
  EXPECT_FALSE(machine_.join_tensors(join, peer("worker 1")).has_value()) << "it has one";
  (void)machine_.take_actions();
  hear_failed(1, "over");
  EXPECT_EQ(done(Kind::end_tensors).size(), 1U);
}

TEST_F(Rosters, WorkersThatHangWhileARosterIsFormedLoseTheirPlaces) {
  run();
  machine_.lost({0}, {ErrorCode::peer_lost, "test", "killed"}, now_);
  (void)machine_.take_actions();
  machine_.look_for_hung(now_);
  ASSERT_EQ(done(Kind::say).size(), 1U) << "a ping";
  now_ += 2s;
  machine_.look_for_hung(now_);
  EXPECT_TRUE(machine_.take_actions().empty()) << "it was asked, and has its time";
  now_ += 8s;
  machine_.look_for_hung(now_);
  const auto actions = machine_.take_actions();
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(actions[0].kind, Kind::give_up);
  EXPECT_EQ(actions[0].rank, GlobalRank{1});
  EXPECT_NE(actions[0].why.detail.find("did not reply within 10000 ms"), std::string::npos);
  EXPECT_EQ(seat(1), SeatState::empty);
}

TEST_F(Rosters, AReplyKeepsThePlaceUntilTheWorkerShouldHaveEntered) {
  for (const std::uint32_t rank : {0U, 1U}) ASSERT_TRUE(succeeds(joins(rank)));
  machine_.open({}, now_);
  hear_ready(0);
  (void)machine_.take_actions();
  const auto replies = [&] {
    const auto asked = done(Kind::say);
    ASSERT_EQ(asked.size(), 1U);
    ASSERT_EQ(asked[0].first, 1U);
    v1::Word beat = word();
    beat.set_roster(0);
    beat.mutable_heartbeat()->set_ping(asked[0].second.ping().nonce());
    hear(1, beat);
  };
  machine_.look_for_hung(now_);
  replies();
  now_ += 9s;
  machine_.look_for_hung(now_);
  replies();
  now_ += 2s;
  machine_.look_for_hung(now_);
  replies();
  machine_.look_for_hung(now_);
  const auto actions = machine_.take_actions();
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_TRUE(actions[0].word.has_roster_closed()) << "to rank 0, which was in it";
  EXPECT_EQ(actions[1].kind, Kind::give_up);
  EXPECT_NE(actions[1].why.detail.find("did not enter roster 1"), std::string::npos);
}

TEST_F(Rosters, TheEndIsSaidToAllThatAreThere) {
  run();
  give(1);
  machine_.drain();
  EXPECT_EQ(machine_.state(), RosterState::draining);
  EXPECT_TRUE(detail::runs(machine_.state()));
  machine_.stop("over", 1);
  const auto said = done(Kind::say);
  ASSERT_EQ(said.size(), 2U);
  EXPECT_EQ(said[0].second.stop().last_inputs(), 1U);
  machine_.drain();
  EXPECT_EQ(machine_.state(), RosterState::stopped);
  machine_.lost({0}, {ErrorCode::end_of_stream, "test", ""}, now_);
  EXPECT_EQ(machine_.state(), RosterState::stopped);
}

TEST_F(Rosters, NobodyHasAPlaceWhereNoneIsFormedAnyMore) {
  ASSERT_TRUE(succeeds(joins(1)));
  machine_.fail({ErrorCode::worker_lost, "test", "three times in vain"});
  EXPECT_EQ(done(Kind::give_up).size(), 1U);
  EXPECT_TRUE(machine_.seats().all(SeatState::empty));
  EXPECT_TRUE(fails_with(joins(1), ErrorCode::worker_lost, "three times in vain"));
}

TEST_F(Rosters, HeartbeatsSayHowFarTheFlowsAre) {
  run();
  EXPECT_FALSE(machine_.beat());
  give(1);
  (void)machine_.take_actions();
  EXPECT_TRUE(machine_.beat());
  const auto beats = done(Kind::say_if_idle);
  ASSERT_EQ(beats.size(), 2U);
  EXPECT_EQ(detail::number_of(beats[0].second.heartbeat().sent(), v1::FLOW_STEP_INPUTS), 1U);
  // Outputs that a worker announced twice, but that did not arrive, are requested.
  v1::Word beat = word();
  (*beat.mutable_heartbeat()->mutable_sent())[v1::FLOW_STEP_OUTPUTS] = 1;
  beat.mutable_heartbeat()->set_waiting("in all_reduce #1");
  beat.mutable_heartbeat()->add_waiting_for(1);
  hear(0, beat);
  EXPECT_TRUE(done(Kind::say).empty());
  now_ += 1s;
  hear(0, beat);
  EXPECT_EQ(done(Kind::say).size(), 1U);
  EXPECT_EQ(machine_.status(now_).workers[0].waiting, "in all_reduce #1");
  EXPECT_EQ(machine_.status(now_).workers[0].waiting_for, std::vector<GlobalRank>{{1}});
}

}  // namespace
}  // namespace tendon::test
