// SPDX-License-Identifier: Apache-2.0
// The rules of the engine's scheduler, one by one, then all of them at random.
#include "controller/scheduler.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "model_worker.hpp"
#include "support/expect.hpp"

namespace engine {
namespace {

using tendon::test::fails_with;
using tendon::test::succeeds;

SchedulerLimits limits_of(std::uint32_t blocks, std::uint32_t kv_size = 1,
                          std::uint32_t stages = 1) {
  return {.blocks = blocks,
          .context = 512,
          .vocabulary = ModelWorker::kVocabulary,
          .eos = {},
          .kv_size = kv_size,
          .stages = stages};
}

std::vector<std::uint32_t> prompt_of(std::uint32_t tokens, std::uint32_t first = 1) {
  std::vector<std::uint32_t> prompt(tokens);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

Request request(const std::string& id, std::uint32_t prompt_tokens, std::uint32_t max_tokens,
                std::uint32_t first = 1) {
  Request made{.id = id, .prompt = prompt_of(prompt_tokens, first), .sampling = {}};
  made.sampling.set_max_tokens(max_tokens);
  return made;
}

/// The first `count` tokens that follow a prompt.
std::vector<std::uint32_t> continuation(std::vector<std::uint32_t> prompt, std::size_t count) {
  std::vector<std::uint32_t> output;
  for (std::size_t i = 0; i < count; ++i) {
    output.push_back(ModelWorker::after(prompt));
    prompt.push_back(output.back());
  }
  return output;
}

/// One part of a step, in a few numbers: sequence, tokens, position, attempt.
using Part = std::vector<std::uint64_t>;
std::vector<Part> parts_of(const v1::StepInputs& step) {
  std::vector<Part> parts;
  for (const auto& each : step.scheduler_output().seq_schedule_metadata_list()) {
    parts.push_back({each.seq_id(), each.num_q_tokens(), each.position(), each.attempt()});
  }
  return parts;
}

/// A scheduler, the workers, and the messages to clients.
class Engine {
 public:
  explicit Engine(const SchedulerLimits& limits)
      : scheduler(limits), worker(limits.blocks, limits.kv_size) {}

  void submit(Request request) {
    const auto refused = scheduler.submit(std::move(request));
    EXPECT_FALSE(refused.has_value()) << refused->message;
  }
  /// Starts the next step.
  v1::StepInputs give() {
    auto step = scheduler.next_step();
    EXPECT_TRUE(step.has_value());
    if (!step) return {};
    in_flight.push_back(worker.run(*step));
    return *std::move(step);
  }
  /// Takes the outputs of the oldest step.
  void take() {
    EXPECT_TRUE(succeeds(scheduler.accept(in_flight.front())));
    in_flight.pop_front();
    hear();
  }
  v1::StepInputs step() {
    auto given = give();
    take();
    return given;
  }
  void hear() {
    for (const Notice& notice : scheduler.take_notices()) {
      if (const auto* told = std::get_if<NewTokens>(&notice)) {
        EXPECT_FALSE(done.contains(told->id));
        auto& all = tokens[told->id];
        all.insert(all.end(), told->tokens.begin(), told->tokens.end());
      } else {
        const auto& its = std::get<Done>(notice);
        EXPECT_TRUE(done.emplace(its.id, its).second);
      }
    }
  }
  void lose_workers(std::uint32_t rank = 2) {
    in_flight.clear();
    worker.forget();
    scheduler.lose_workers({.rank = rank, .host = "b", .cause = "its process ended"});
    hear();
  }
  void run_to_the_end() {
    while (auto step = scheduler.next_step()) {
      in_flight.push_back(worker.run(*step));
      take();
    }
    EXPECT_TRUE(scheduler.is_idle());
    EXPECT_EQ(worker.sequences(), 0U);
    EXPECT_EQ(scheduler.load().used_blocks, 0U);
  }

  Scheduler scheduler;
  ModelWorker worker;
  std::deque<v1::StepOutputs> in_flight;
  std::map<std::string, std::vector<std::uint32_t>> tokens;
  std::map<std::string, Done> done;
};

TEST(BlockBudget, BlocksGoRoundOverTheKvRanks) {
  EXPECT_EQ(blocks_on(0, 0, 1), 0U);
  EXPECT_EQ(blocks_on(0, 16, 1), 1U);
  EXPECT_EQ(blocks_on(0, 17, 1), 2U);
  EXPECT_EQ(blocks_on(0, 40, 2), 2U);
  EXPECT_EQ(blocks_on(1, 40, 2), 1U);
  EXPECT_EQ(blocks_on(2, 40, 4), 1U);
  EXPECT_EQ(blocks_on(3, 40, 4), 0U);
}

TEST(Scheduler, TellsAllTokensOnceAndThenTheEnd) {
  Engine engine(limits_of(64));
  engine.submit(request("a", 5, 3));
  engine.run_to_the_end();
  EXPECT_EQ(engine.tokens["a"], continuation(prompt_of(5), 3));
  const Done& done = engine.done.at("a");
  EXPECT_EQ(done.reason, v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(done.prompt_tokens, 5U);
  EXPECT_EQ(done.completion_tokens, 3U);
}

TEST(Scheduler, DecodesGoBeforePartsOfPrompts) {
  Engine engine(limits_of(64));
  engine.submit(request("long", 300, 5));
  EXPECT_EQ(parts_of(engine.step()), (std::vector<Part>{{1, 256, 0, 0}}));
  engine.submit(request("short", 10, 5));
  EXPECT_EQ(parts_of(engine.step()), (std::vector<Part>{{1, 44, 256, 0}, {2, 10, 0, 0}}));
  engine.submit(request("third", 400, 5));
  EXPECT_EQ(parts_of(engine.step()),
            (std::vector<Part>{{1, 1, 300, 0}, {2, 1, 10, 0}, {3, 254, 0, 0}}));
  EXPECT_EQ(parts_of(engine.step()),
            (std::vector<Part>{{1, 1, 301, 0}, {2, 1, 11, 0}, {3, 146, 254, 0}}));
}

TEST(Scheduler, AStepHasAtMost32Sequences) {
  Engine engine(limits_of(64));
  for (int i = 0; i < 40; ++i) engine.submit(request("r" + std::to_string(i), 2, 2));
  EXPECT_EQ(parts_of(engine.step()).size(), 32U);
  EXPECT_EQ(engine.scheduler.load().waiting, 8U);
  EXPECT_EQ(parts_of(engine.step()).size(), 32U);
  EXPECT_EQ(engine.done.size(), 32U);
  EXPECT_EQ(parts_of(engine.step()).size(), 8U);
}

TEST(Scheduler, FirstComeFirstServed) {
  // The second does not fit beside the first; the third would, and waits for the second.
  Engine engine(limits_of(4));
  engine.submit(request("first", 33, 2));
  engine.submit(request("second", 33, 2));
  engine.submit(request("third", 3, 2));
  EXPECT_EQ(parts_of(engine.step()), (std::vector<Part>{{1, 33, 0, 0}}));
  EXPECT_EQ(parts_of(engine.step()), (std::vector<Part>{{1, 1, 33, 0}}));
  EXPECT_EQ(parts_of(engine.step()), (std::vector<Part>{{2, 33, 0, 0}, {3, 3, 0, 0}}));
}

TEST(Scheduler, TheYoungestIsPreemptedWhenBlocksRunOut) {
  Engine engine(limits_of(4));
  engine.submit(request("old", 30, 20));
  engine.submit(request("young", 30, 10, 100));
  engine.step();
  while (engine.tokens["old"].size() < 3) engine.step();  // 32 tokens of each have their keys
  EXPECT_EQ(engine.scheduler.load().used_blocks, 4U);
  const auto step = engine.step();
  EXPECT_EQ(parts_of(step), (std::vector<Part>{{1, 1, 32, 0}}));
  ASSERT_EQ(step.scheduler_output().preempted_seq_ids_size(), 1);
  EXPECT_EQ(step.scheduler_output().preempted_seq_ids(0), 2U);
  EXPECT_EQ(engine.scheduler.load().waiting, 1U);
  while (!engine.done.contains("old")) engine.step();
  // All of it again, with its output: the workers know these tokens already.
  EXPECT_EQ(parts_of(engine.step()), (std::vector<Part>{{2, 33, 0, 1}}));
  engine.run_to_the_end();
  EXPECT_EQ(engine.tokens["old"], continuation(prompt_of(30), 20));
  EXPECT_EQ(engine.tokens["young"], continuation(prompt_of(30, 100), 10));
}

TEST(Scheduler, NoMoreArePreemptedThanItTakes) {
  Engine engine(limits_of(6));
  for (const char* id : {"old", "middle", "young"}) engine.submit(request(id, 30, 20));
  engine.step();
  while (engine.tokens["old"].size() < 3) engine.step();
  const auto step = engine.step();
  ASSERT_EQ(step.scheduler_output().preempted_seq_ids_size(), 1);
  EXPECT_EQ(step.scheduler_output().preempted_seq_ids(0), 3U);
  EXPECT_EQ(parts_of(step), (std::vector<Part>{{1, 1, 32, 0}, {2, 1, 32, 0}}));
  engine.run_to_the_end();
}

TEST(Scheduler, WhatIsPartOfTheStepIsNotPreemptedForIt) {
  SchedulerLimits limits = limits_of(4, 1, 2);
  limits.step_tokens = 20;
  Engine engine(limits);
  engine.submit(request("old", 40, 5));
  engine.submit(request("young", 16, 5));
  engine.submit(request("waits", 33, 5));
  EXPECT_EQ(parts_of(engine.give()), (std::vector<Part>{{1, 20, 0, 0}}));
  EXPECT_EQ(parts_of(engine.give()), (std::vector<Part>{{2, 16, 0, 0}}));
  engine.take();
  engine.take();
  // The token of the younger sequence takes the last block, which the rest of the older prompt
  // needs.
  EXPECT_EQ(parts_of(engine.give()), (std::vector<Part>{{2, 1, 16, 0}}));
  const auto step = engine.give();
  EXPECT_EQ(parts_of(step), (std::vector<Part>{{1, 20, 20, 0}}));
  ASSERT_EQ(step.scheduler_output().preempted_seq_ids_size(), 1);
  EXPECT_EQ(step.scheduler_output().preempted_seq_ids(0), 2U);
  engine.take();
  engine.take();
  engine.run_to_the_end();
}

TEST(Scheduler, WhatIsTooLongIsRefused) {
  Engine engine(limits_of(4));
  const auto code_of = [&](Request asked) {
    const auto refused = engine.scheduler.submit(std::move(asked));
    return refused ? to_string(refused->code) : std::string_view("accepted");
  };
  EXPECT_EQ(code_of(request("a", 512, 1)), "context_too_long");
  EXPECT_EQ(code_of(request("a", 60, 6)), "memory_too_small");
  EXPECT_EQ(code_of(request("a", 60, 5)), "accepted");  // the last token needs no keys
  EXPECT_EQ(code_of(request("a", 3, 5)), "duplicate_id");
  EXPECT_EQ(code_of(request("b", 0, 5)), "malformed");
  EXPECT_EQ(code_of(request("b", 3, 5, ModelWorker::kVocabulary - 2)), "malformed");
  engine.run_to_the_end();
  EXPECT_EQ(engine.tokens["a"].size(), 5U);
}

TEST(Scheduler, AQueueThatIsFullRefuses) {
  Engine engine(limits_of(64));
  for (int i = 0; i < 256; ++i) engine.submit(request("r" + std::to_string(i), 2, 2));
  auto refused = engine.scheduler.submit(request("one more", 2, 2));
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, RefusalCode::queue_full);
  engine.step();
  engine.submit(request("one more", 2, 2));
  engine.run_to_the_end();
  EXPECT_EQ(engine.done.size(), 257U);
}

TEST(Scheduler, CancelTakesEffectInTheNextStep) {
  Engine engine(limits_of(64));
  engine.submit(request("a", 20, 50));
  engine.submit(request("b", 20, 50, 300));
  engine.step();
  engine.give();
  engine.scheduler.cancel("a");
  EXPECT_EQ(engine.scheduler.load().used_blocks, 2U);
  engine.take();  // nobody gets its token of the step under way
  EXPECT_EQ(engine.tokens["a"].size(), 1U);
  EXPECT_EQ(engine.done.at("a").reason, v1::FINISH_REASON_CANCELLED);
  const auto step = engine.step();
  EXPECT_EQ(parts_of(step), (std::vector<Part>{{2, 1, 21, 0}}));
  ASSERT_EQ(step.scheduler_output().finished_seqs_size(), 1);
  EXPECT_EQ(step.scheduler_output().finished_seqs(0).seq_id(), 1U);
  EXPECT_EQ(step.scheduler_output().finished_seqs(0).reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(engine.worker.used(), engine.scheduler.load().used_blocks);
  engine.scheduler.cancel("a");  // it is done already
  engine.scheduler.finish("b");
  engine.hear();
  EXPECT_EQ(engine.done.at("b").reason, v1::FINISH_REASON_STOP);
  // A step that contains only an end frees the blocks.
  EXPECT_TRUE(parts_of(engine.step()).empty());
  EXPECT_EQ(engine.worker.used(), 0U);
  EXPECT_FALSE(engine.scheduler.next_step().has_value());
}

TEST(Scheduler, NoWorkerHearsOfTheEndOfWhatWaited) {
  Engine engine(limits_of(64));
  engine.submit(request("a", 20, 50));
  engine.scheduler.cancel("a");
  EXPECT_FALSE(engine.scheduler.next_step().has_value());
  EXPECT_TRUE(engine.scheduler.is_idle());
}

TEST(Scheduler, TokensReachWorkersWithTheNextStep) {
  Engine engine(limits_of(64));
  engine.submit(request("a", 3, 3));
  auto step = engine.step();
  EXPECT_EQ(step.new_seq_params_size(), 1);
  EXPECT_EQ(step.pending_step_outputs_size(), 0);
  step = engine.step();
  EXPECT_EQ(step.new_seq_params_size(), 0);
  ASSERT_EQ(step.pending_step_outputs_size(), 1);
  EXPECT_EQ(step.pending_step_outputs(0).scheduler_output().schedule_id(), 1U);
  EXPECT_EQ(step.pending_step_outputs(0).sampler_outputs(0).output_tokens(0),
            engine.tokens["a"][0]);
}

TEST(Scheduler, ASequenceEndsAtItsEndToken) {
  SchedulerLimits limits = limits_of(64);
  const auto expected = continuation(prompt_of(5), 6);
  limits.eos = expected[3];
  Engine engine(limits);
  engine.submit(request("a", 5, 6));
  Request goes_on = request("b", 5, 6);
  goes_on.sampling.set_ignore_eos(true);
  engine.submit(std::move(goes_on));
  engine.run_to_the_end();
  EXPECT_EQ(engine.tokens["a"], continuation(prompt_of(5), 3));
  EXPECT_EQ(engine.done.at("a").reason, v1::FINISH_REASON_STOP);
  EXPECT_EQ(engine.tokens["b"], expected);
}

TEST(Scheduler, ASequenceEndsWithTheContext) {
  SchedulerLimits limits = limits_of(64);
  limits.context = 40;
  Engine engine(limits);
  engine.submit(request("a", 36, 100));
  engine.run_to_the_end();
  EXPECT_EQ(engine.tokens["a"].size(), 4U);
  EXPECT_EQ(engine.done.at("a").reason, v1::FINISH_REASON_LENGTH);
}

TEST(Scheduler, StagesHaveStepsOfDisjointSequencesInFlight) {
  Engine engine(limits_of(64, 1, 2));
  for (int i = 0; i < 4; ++i) engine.submit(request("r" + std::to_string(i), 3, 4));
  EXPECT_EQ(parts_of(engine.give()), (std::vector<Part>{{1, 3, 0, 0}, {2, 3, 0, 0}}));
  EXPECT_EQ(parts_of(engine.give()), (std::vector<Part>{{3, 3, 0, 0}, {4, 3, 0, 0}}));
  EXPECT_FALSE(engine.scheduler.next_step().has_value());
  engine.take();
  EXPECT_EQ(parts_of(engine.give()), (std::vector<Part>{{1, 1, 3, 0}, {2, 1, 3, 0}}));
  engine.take();
  EXPECT_EQ(parts_of(engine.give()), (std::vector<Part>{{3, 1, 3, 0}, {4, 1, 3, 0}}));
}

TEST(Scheduler, ASequenceIsNeverInTwoStepsInFlight) {
  Engine engine(limits_of(64, 1, 3));
  engine.submit(request("a", 300, 4));
  EXPECT_EQ(parts_of(engine.give()), (std::vector<Part>{{1, 256, 0, 0}}));
  EXPECT_FALSE(engine.scheduler.next_step().has_value());
  engine.take();
  EXPECT_EQ(parts_of(engine.give()), (std::vector<Part>{{1, 44, 256, 0}}));
  EXPECT_FALSE(engine.scheduler.next_step().has_value());
}

TEST(Scheduler, OneThatIsPreemptedWhileInFlightWaitsForItsToken) {
  Engine engine(limits_of(4, 1, 2));
  engine.submit(request("old", 31, 20));
  engine.submit(request("young", 17, 10, 100));
  engine.give();
  engine.give();
  engine.take();
  engine.give();  // the 32nd token of the older one
  engine.take();
  engine.give();  // a decode of the younger one
  engine.take();
  const auto step = engine.give();  // the older one needs a third block
  EXPECT_EQ(parts_of(step), (std::vector<Part>{{1, 1, 32, 0}}));
  EXPECT_EQ(step.scheduler_output().preempted_seq_ids_size(), 1);
  engine.take();
  engine.take();
  engine.run_to_the_end();
  EXPECT_EQ(engine.tokens["young"], continuation(prompt_of(17, 100), 10));
}

TEST(Scheduler, AfterALostWorkerRequestsGoOnWhereTheyWere) {
  Engine engine(limits_of(64));
  engine.submit(request("a", 5, 6));
  engine.step();
  engine.step();
  engine.give();  // its token is lost with the worker
  engine.lose_workers();
  EXPECT_EQ(engine.tokens["a"].size(), 2U);
  EXPECT_EQ(engine.scheduler.load().used_blocks, 0U);
  const auto step = engine.step();
  EXPECT_EQ(step.scheduler_output().schedule_id(), 4U);
  EXPECT_EQ(parts_of(step), (std::vector<Part>{{1, 7, 0, 1}}));
  ASSERT_EQ(step.new_seq_params_size(), 1);
  EXPECT_EQ(step.new_seq_params(0).prompt_token_ids_size(), 5);
  ASSERT_EQ(step.pending_step_outputs_size(), 1);
  EXPECT_EQ(step.pending_step_outputs(0).sampler_outputs(0).output_tokens_size(), 2);
  engine.run_to_the_end();
  EXPECT_EQ(engine.tokens["a"], continuation(prompt_of(5), 6));
}

TEST(Scheduler, ASecondLossUnderARequestIsItsEnd) {
  Engine engine(limits_of(64));
  engine.submit(request("unlucky", 5, 6));
  engine.step();
  engine.lose_workers();
  engine.step();
  engine.submit(request("waits", 5, 6));
  engine.lose_workers(4);
  const Done& done = engine.done.at("unlucky");
  EXPECT_EQ(done.reason, v1::FINISH_REASON_FAILED);
  EXPECT_EQ(done.failure.code, "worker_lost");
  EXPECT_NE(done.failure.message.find("rank 4 on host b"), std::string::npos);
  EXPECT_NE(done.failure.message.find("its process ended"), std::string::npos);
  engine.run_to_the_end();
  EXPECT_EQ(engine.tokens["waits"].size(), 6U);
  EXPECT_EQ(engine.done.size(), 2U);
}

TEST(Scheduler, OutputsThatAreWrongAreRefused) {
  Engine engine(limits_of(64));
  engine.submit(request("a", 5, 6));
  engine.give();
  const v1::StepOutputs right = engine.in_flight.front();
  const auto refused = [&](auto change, std::string_view text) {
    v1::StepOutputs wrong = right;
    change(wrong);
    return fails_with(engine.scheduler.accept(wrong), tendon::ErrorCode::protocol_violation, text);
  };
  EXPECT_TRUE(refused([](auto& its) { its.set_schedule_id(9); }, "not in flight"));
  EXPECT_TRUE(refused([](auto& its) { its.clear_sampler_outputs(); }, "none for sequence 1"));
  EXPECT_TRUE(refused([](auto& its) { its.add_sampler_outputs(); }, "more than"));
  EXPECT_TRUE(refused([](auto& its) { its.mutable_sampler_outputs(0)->set_seq_id(2); },
                      "expected for sequence 1"));
  EXPECT_TRUE(refused([](auto& its) { its.mutable_sampler_outputs(0)->add_output_tokens(2); },
                      "expected for sequence 1"));
  EXPECT_TRUE(refused(
      [](auto& its) {
        its.mutable_sampler_outputs(0)->set_output_tokens(0, ModelWorker::kVocabulary);
      },
      "expected for sequence 1"));
  engine.take();
  EXPECT_EQ(engine.tokens["a"].size(), 1U);
}

TEST(Scheduler, WhatIsLeftCanBeEnded) {
  Engine engine(limits_of(64));
  engine.submit(request("a", 5, 6));
  engine.step();
  engine.submit(request("b", 5, 6));
  engine.scheduler.fail_all({.code = "stopping", .message = "the controller ends"});
  engine.hear();
  EXPECT_EQ(engine.done.at("a").failure.code, "stopping");
  EXPECT_EQ(engine.done.at("b").reason, v1::FINISH_REASON_FAILED);
  engine.run_to_the_end();
}

/// Requests, cancels and losses at random, with few blocks. Each request gets the same tokens as it
/// would alone, and at the end nothing is held.
class RandomRuns : public testing::TestWithParam<std::uint32_t> {};

TEST_P(RandomRuns, GiveEachRequestItsTokens) {
  std::mt19937 random(GetParam());
  const auto below = [&](std::uint32_t end) { return static_cast<std::uint32_t>(random() % end); };
  const std::uint32_t kv_size = 1 + below(3);
  const std::uint32_t stages = 1 + below(3);
  SchedulerLimits limits = limits_of(3 + below(6), kv_size, stages);
  limits.context = limits.blocks * kBlockTokens * kv_size / 2;
  limits.step_tokens = 20 + below(60);
  limits.step_sequences = 1 + below(6);
  Engine engine(limits);
  std::map<std::string, Request> asked;
  std::set<std::string> cancelled;
  for (int turn = 0; turn < 300; ++turn) {
    if (turn < 200 && below(6) == 0) {
      const std::string id = std::to_string(turn);
      Request made = request(id, 1 + below(limits.context - 2), 1 + below(30), 1 + below(100));
      asked.emplace(id, made);
      engine.submit(std::move(made));
    }
    if (!asked.empty() && below(25) == 0) {
      const auto& id =
          std::next(asked.begin(), below(static_cast<std::uint32_t>(asked.size())))->first;
      engine.scheduler.cancel(id);
      cancelled.insert(id);
    }
    if (turn == 100 && below(2) == 0) engine.lose_workers();
    if (auto step = engine.scheduler.next_step()) {
      std::set<std::uint64_t> seen;
      std::uint32_t tokens = 0;
      for (const auto& part : parts_of(*step)) {
        EXPECT_TRUE(seen.insert(part[0]).second);
        tokens += static_cast<std::uint32_t>(part[1]);
      }
      EXPECT_LE(tokens, limits.step_tokens);
      EXPECT_LE(seen.size(), limits.step_sequences);
      engine.in_flight.push_back(engine.worker.run(*step));
    }
    if (engine.in_flight.size() == stages || (!engine.in_flight.empty() && below(2) == 0)) {
      engine.take();
    }
    if (testing::Test::HasFailure()) break;
  }
  while (!engine.in_flight.empty()) engine.take();
  engine.run_to_the_end();
  EXPECT_EQ(engine.done.size(), asked.size());
  for (const auto& [id, made] : asked) {
    const std::size_t room = limits.context - made.prompt.size();
    const auto expected =
        continuation(made.prompt, std::min<std::size_t>(made.sampling.max_tokens(), room));
    const auto& got = engine.tokens[id];
    ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin())) << id;
    if (!cancelled.contains(id)) {
      EXPECT_EQ(got.size(), expected.size()) << id;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomRuns, testing::Range(1U, 101U));

}  // namespace
}  // namespace engine
