// SPDX-License-Identifier: Apache-2.0
// A worker in the rosters of its controller, driven only by words: no pipe, no socket, no clock.
#include "control/machine/worker_machine.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "support/batches.hpp"
#include "support/control_team.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::WorkerAction;
using detail::WorkerMachine;
using detail::WorkerPlace;
using detail::WorkerState;
using Kind = WorkerAction::Kind;

/// Rank 0 of two in one tensor group, which sends outputs; rank 1 sends none.
class AWorker : public testing::Test {
 protected:
  static WorkerPlace place_of(std::uint32_t rank) {
    const ParallelLayout layout = layout_of(2, 1, 1);
    return {.layout = layout,
            .rank = {rank},
            .at = layout.place_of({rank}).value(),
            .incarnation = 77,
            .host = {},
            .options = {.payload_version = 5, .free_blocks = 9}};
  }
  static v1::Word word(std::uint64_t roster) {
    return detail::word_of({.run = "run", .roster = roster});
  }
  void hear(v1::Word word) { machine_.hear(std::move(word), now_); }
  void hear_welcome() {
    v1::Word welcome = word(0);
    welcome.mutable_welcome()->set_idle_heartbeat_ms(300);
    welcome.mutable_welcome()->set_step_heartbeat_ms(20);
    hear(welcome);
  }
  void hear_rebuild(std::uint64_t roster) {
    v1::Word rebuild = word(roster);
    rebuild.mutable_rebuild()->set_inputs_endpoint("ipc:" + std::to_string(roster));
    hear(rebuild);
  }
  void hear_closed(std::uint64_t roster) {
    v1::Word closed = word(roster);
    closed.mutable_roster_closed()->set_reason("rank 1 is gone");
    hear(closed);
  }
  void hear_stop(std::uint64_t last_inputs) {
    v1::Word stop = word(machine_.id().roster);
    stop.mutable_stop()->set_reason("over");
    stop.mutable_stop()->set_last_inputs(last_inputs);
    hear(stop);
  }
  void take(v1::StepMessage message) {
    machine_.take(machine_.id().roster, {.messages = {std::move(message)}, .refused = 0});
  }
  [[nodiscard]] v1::StepMessage inputs(std::uint64_t sequence, std::uint64_t schedule_id) const {
    v1::StepMessage message = detail::message_of(machine_.id(), v1::FLOW_STEP_INPUTS, sequence);
    message.set_schedule_id(schedule_id);
    message.set_payload("step " + std::to_string(schedule_id));
    return message;
  }
  void run(std::uint64_t roster = 1) {
    if (machine_.state() == WorkerState::joining) hear_welcome();
    hear_rebuild(roster);
    (void)machine_.enter();
    v1::StepMessage probe = detail::message_of(machine_.id(), v1::FLOW_PROBE);
    probe.set_nonce(31);
    take(probe);
    ASSERT_TRUE(machine_.was_probed());
    machine_.ready({});
    (void)machine_.take_actions();
  }
  /// The only action that the machine wants.
  WorkerAction action() {
    auto actions = machine_.take_actions();
    EXPECT_EQ(actions.size(), 1U);
    return actions.empty() ? WorkerAction{Kind::fail, {}, {}} : std::move(actions.front());
  }

  WorkerMachine::Time now_{1h};
  const WorkerPlace place_ = place_of(0);
  WorkerMachine machine_{place_};
};

TEST_F(AWorker, SaysWhatItIsAndEntersTheRosterThatItIsToldOf) {
  const v1::Join join = machine_.join("key").join();
  EXPECT_EQ(join.incarnation(), 77U);
  EXPECT_EQ(join.tensor_parallel_size(), 2U);
  EXPECT_EQ(join.payload_version(), 5U);
  EXPECT_EQ(join.public_key(), "key");
  EXPECT_EQ(machine_.beat_interval(), 1s) << "the controller has said nothing yet";

  hear_rebuild(1);
  EXPECT_FALSE(machine_.may_enter()) << "it has no place";
  hear_welcome();
  EXPECT_EQ(machine_.beat_interval(), 300ms);
  EXPECT_TRUE(machine_.may_enter());
  hear_rebuild(2);
  EXPECT_EQ(machine_.enter().inputs, "ipc:2");
  EXPECT_EQ(machine_.state(), WorkerState::entering);
  EXPECT_FALSE(machine_.may_enter());
  EXPECT_FALSE(machine_.moves_steps());
  v1::StepMessage probe = detail::message_of(machine_.id(), v1::FLOW_PROBE);
  probe.set_nonce(31);
  take(probe);
  v1::Ready groups;
  groups.set_group_epoch(4);
  machine_.ready(groups);
  const WorkerAction said = action();
  EXPECT_EQ(said.kind, Kind::say);
  EXPECT_EQ(said.word.roster(), 2U);
  EXPECT_EQ(said.word.ready().nonce(), 31U);
  EXPECT_EQ(said.word.ready().group_epoch(), 4U);
  EXPECT_EQ(said.word.ready().free_blocks(), 9U);
  EXPECT_EQ(machine_.state(), WorkerState::running);
}

TEST_F(AWorker, GivesOutStepsInOrderAndAsksForWhatIsLost) {
  run();
  EXPECT_FALSE(machine_.next_step());
  take(inputs(2, 20));
  const WorkerAction asks = action();
  EXPECT_EQ(asks.word.resend_request().flow(), v1::FLOW_STEP_INPUTS);
  EXPECT_EQ(asks.word.resend_request().last(), 1U);
  EXPECT_FALSE(machine_.next_step());
  v1::Word resent = word(1);
  *resent.mutable_resent() = inputs(1, 10);
  hear(resent);
  const auto first = machine_.next_step();
  ASSERT_TRUE(first);
  EXPECT_EQ(text_of(first->inputs.payload), "step 10");
  EXPECT_EQ(machine_.beat_interval(), 20ms);
  machine_.give_back(*first);
  EXPECT_EQ(machine_.next_step()->inputs.schedule_id, 10U);
  machine_.step_over(10);
  EXPECT_FALSE(machine_.is_at_work());
  EXPECT_EQ(machine_.next_step()->inputs.schedule_id, 20U);
  EXPECT_TRUE(machine_.take_actions().empty()) << "its outputs say that it has taken them";
  take(inputs(1, 10));
  EXPECT_EQ(machine_.stats().doubled, 1U);
  EXPECT_EQ(machine_.stats().received, 2U);
}

TEST_F(AWorker, ThatSendsNoOutputsSaysWhatItHasTaken) {
  const WorkerPlace place = place_of(1);
  WorkerMachine machine(place);
  v1::Word welcome = word(0);
  welcome.mutable_welcome();
  machine.hear(welcome, now_);
  v1::Word rebuild = word(1);
  rebuild.mutable_rebuild();
  machine.hear(rebuild, now_);
  (void)machine.enter();
  machine.ready({});
  (void)machine.take_actions();
  machine.take(
      1, {.messages = {detail::message_of(machine.id(), v1::FLOW_STEP_INPUTS, 1)}, .refused = 0});
  ASSERT_TRUE(machine.next_step());
  const auto actions = machine.take_actions();
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(actions[0].word.inputs_applied().sequence(), 1U);
}

TEST_F(AWorker, GivesOutAStepWithItsTensors) {
  run();
  v1::StepMessage message = inputs(1, 10);
  message.set_has_tensors(true);
  take(message);
  EXPECT_FALSE(machine_.next_step());
  EXPECT_EQ(machine_.waits_for_tensors_of(), 10U);
  v1::Word announced = word(1);
  announced.mutable_step_tensors()->set_schedule_id(10);
  hear(announced);
  EXPECT_EQ(machine_.take_announced(), 10U);
  EXPECT_EQ(machine_.take_announced(), 0U);
  announced.set_roster(2);
  hear(announced);
  EXPECT_EQ(machine_.take_announced(), 0U) << "of another roster";
  machine_.keep_tensors(2, 10, patterned(1, 10));
  EXPECT_FALSE(machine_.next_step());
  machine_.keep_tensors(1, 10, patterned(1, 10));
  EXPECT_FALSE(machine_.waits_for_tensors_of());
  const auto step = machine_.next_step();
  ASSERT_TRUE(step);
  EXPECT_TRUE(is_patterned(step->inputs.tensors, 1, 10));
}

TEST_F(AWorker, EndsARosterThatIsClosedAndWaitsForTheNextOne) {
  run();
  take(inputs(1, 10));
  ASSERT_TRUE(machine_.next_step());
  hear_closed(7);
  EXPECT_EQ(machine_.state(), WorkerState::running) << "another roster's end";
  hear_closed(1);
  EXPECT_EQ(machine_.state(), WorkerState::closed);
  EXPECT_EQ(machine_.error("test").code, ErrorCode::roster_closed);
  const WorkerAction aborts = action();
  EXPECT_EQ(aborts.kind, Kind::abort_groups);
  EXPECT_EQ(aborts.why.detail, "rank 1 is gone");
  machine_.failed({ErrorCode::peer_lost, "test", "a collective"}, "next key", 12);
  const v1::Word said = action().word;
  EXPECT_EQ(said.step_failed().schedule_id(), 10U);
  EXPECT_EQ(said.step_failed().last_complete_sequence(), 12U);
  EXPECT_EQ(said.step_failed().public_key(), "next key");
  EXPECT_EQ(machine_.state(), WorkerState::waiting);
  EXPECT_FALSE(machine_.is_at_work());
  run(2);
  take(inputs(1, 11));
  EXPECT_EQ(machine_.next_step()->inputs.schedule_id, 11U) << "numbers begin anew";
}

TEST_F(AWorker, FailsARosterThatIsOverBeforeItEnteredIt) {
  hear_welcome();
  hear_rebuild(3);
  hear_closed(2);
  EXPECT_TRUE(machine_.may_enter());
  hear_closed(3);
  EXPECT_FALSE(machine_.may_enter());
  const WorkerAction fails = action();
  EXPECT_EQ(fails.kind, Kind::fail);
  EXPECT_EQ(machine_.id().roster, 3U);
  hear_rebuild(3);
  EXPECT_FALSE(machine_.may_enter()) << "it is over";
  hear_rebuild(4);
  EXPECT_TRUE(machine_.may_enter());
}

TEST_F(AWorker, EndsWithItsController) {
  run();
  machine_.ended({ErrorCode::peer_lost, "test", "killed"});
  EXPECT_EQ(machine_.state(), WorkerState::ended);
  EXPECT_EQ(action().why.detail, "the controller is gone: killed");
  EXPECT_EQ(machine_.error("test").code, ErrorCode::peer_lost);
  machine_.leave("too late");
  EXPECT_EQ(machine_.error("test").code, ErrorCode::peer_lost);
}

TEST_F(AWorker, ARefusalIsTheControllersOwnWord) {
  machine_.ended({ErrorCode::invalid_argument, "test", "rank 9 of 2 workers"});
  EXPECT_EQ(machine_.error("test").code, ErrorCode::invalid_argument);
  EXPECT_EQ(machine_.error("test").detail, "rank 9 of 2 workers");
}

TEST_F(AWorker, FinishesWhatWasGivenOutBeforeTheStop) {
  run();
  take(inputs(1, 10));
  hear_stop(1);
  EXPECT_EQ(machine_.state(), WorkerState::stopping);
  EXPECT_FALSE(machine_.is_done());
  ASSERT_TRUE(machine_.next_step());
  EXPECT_TRUE(machine_.is_done());
  EXPECT_EQ(machine_.error("test").code, ErrorCode::end_of_stream);
  machine_.ended({ErrorCode::end_of_stream, "test", ""});
  EXPECT_TRUE(machine_.take_actions().empty());
}

TEST_F(AWorker, WaitsForNobodyWhenTheControllerStopsWhileItEnters) {
  hear_welcome();
  hear_rebuild(1);
  (void)machine_.enter();
  hear_stop(0);
  EXPECT_EQ(machine_.state(), WorkerState::ended);
  EXPECT_EQ(action().kind, Kind::abort_groups);
}

TEST_F(AWorker, NumbersItsOutputsAndSendsThemAgain) {
  run();
  v1::StepMessage message;
  message.set_schedule_id(10);
  message = machine_.next_message(v1::FLOW_STEP_OUTPUTS, message);
  EXPECT_EQ(message.sequence(), 1U);
  EXPECT_EQ(message.incarnation(), 77U);
  EXPECT_EQ(message.schedule_id(), 10U);
  machine_.sent(v1::FLOW_STEP_OUTPUTS, detail::encode(message));
  EXPECT_EQ(machine_.next_message(v1::FLOW_STEP_OUTPUTS, {}).sequence(), 2U);
  EXPECT_EQ(machine_.next_message(v1::FLOW_STEP_MICROBATCH_OUTPUTS, {}).sequence(), 1U);

  v1::Word request = word(1);
  request.mutable_resend_request()->set_flow(v1::FLOW_STEP_INPUTS);
  hear(request);
  EXPECT_EQ(machine_.stats().refused, 1U);
  EXPECT_FALSE(machine_.take_break(v1::FLOW_STEP_OUTPUTS));
  request.mutable_resend_request()->set_flow(v1::FLOW_STEP_OUTPUTS);
  request.mutable_resend_request()->set_first(1);
  hear(request);
  EXPECT_EQ(action().kind, Kind::send_again);
  EXPECT_TRUE(machine_.take_break(v1::FLOW_STEP_OUTPUTS));
  EXPECT_FALSE(machine_.take_break(v1::FLOW_STEP_OUTPUTS));

  v1::Word beat = word(1);
  (*beat.mutable_heartbeat()->mutable_applied())[v1::FLOW_STEP_OUTPUTS] = UINT64_MAX;
  hear(beat);
  EXPECT_EQ(machine_.sender_of(v1::FLOW_STEP_OUTPUTS).first_kept(), 2U);
}

TEST_F(AWorker, ConnectsAnewWhereAnnouncedInputsDoNotCome) {
  run();
  v1::Word beat = word(1);
  (*beat.mutable_heartbeat()->mutable_sent())[v1::FLOW_STEP_INPUTS] = 1;
  hear(beat);
  EXPECT_TRUE(machine_.take_actions().empty()) << "they may be under way";
  now_ += 1s;
  hear(beat);
  EXPECT_EQ(action().word.resend_request().first(), 1U);
  EXPECT_TRUE(machine_.take_break(v1::FLOW_STEP_INPUTS));
  take(inputs(1, 10));
  ASSERT_TRUE(machine_.next_step());
  (*beat.mutable_heartbeat()->mutable_sent())[v1::FLOW_STEP_INPUTS] = 2;
  for (int i = 0; i < 2; ++i) {
    now_ += 1s;
    hear(beat);
  }
  EXPECT_EQ(action().word.resend_request().first(), 2U);
  EXPECT_FALSE(machine_.take_break(v1::FLOW_STEP_INPUTS)) << "its program computes";
}

TEST_F(AWorker, AnswersWhateverItsProgramDoes) {
  run();
  take(inputs(1, 10));
  const auto step = machine_.next_step();
  ASSERT_TRUE(step);
  v1::Word cancel = word(1);
  cancel.mutable_cancel()->set_schedule_id(9);
  hear(cancel);
  EXPECT_FALSE(step->cancelled());
  EXPECT_EQ(action().word.cancel_acknowledged().schedule_id(), 9U);
  cancel.mutable_cancel()->set_schedule_id(10);
  hear(cancel);
  EXPECT_TRUE(step->cancelled());
  (void)machine_.take_actions();

  v1::Word ping = word(1);
  ping.mutable_ping()->set_nonce(6);
  hear(ping);
  const WorkerAction reply = action();
  EXPECT_EQ(reply.kind, Kind::reply);
  const v1::Heartbeat beat =
      machine_
          .heartbeat(reply.word.ping().nonce(),
                     {.waiting = "in barrier #1", .waiting_for = {{1}}, .collectives = 3}, 0.5)
          .heartbeat();
  EXPECT_EQ(beat.ping(), 6U);
  EXPECT_EQ(beat.schedule_id(), 10U);
  EXPECT_EQ(beat.waiting(), "in barrier #1");
  EXPECT_EQ(beat.waiting_for(0), 1U);
  EXPECT_EQ(beat.collectives(), 3U);
  EXPECT_EQ(detail::number_of(beat.applied(), v1::FLOW_STEP_INPUTS), 1U);
}

TEST_F(AWorker, WordsOfOtherRostersAndKindsChangeNothing) {
  run();
  hear_welcome();
  v1::Word beat = word(2);
  beat.mutable_heartbeat();
  hear(beat);
  v1::Word lost = word(2);
  lost.mutable_not_retained();
  hear(lost);
  hear(machine_.join("key"));
  v1::Word resent = word(1);
  *resent.mutable_resent() = inputs(0, 1);
  hear(resent);
  EXPECT_EQ(machine_.state(), WorkerState::running);
  EXPECT_EQ(machine_.stats().refused, 2U);
  lost.set_roster(1);
  hear(lost);
  EXPECT_EQ(machine_.state(), WorkerState::closed);
  EXPECT_EQ(action().kind, Kind::abort_groups);
}

}  // namespace
}  // namespace tendon::test
