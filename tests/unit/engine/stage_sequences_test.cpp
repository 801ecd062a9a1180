// SPDX-License-Identifier: Apache-2.0
// How a worker applies a controller's word, and which words it refuses.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "support/expect.hpp"
#include "worker/sequences.hpp"

namespace engine {
namespace {

using tendon::ErrorCode;
using tendon::Result;
using tendon::test::fails_with;
using tendon::test::succeeds;

constexpr LlamaConfig kSizes{.layers = 2,
                             .width = 8,
                             .heads = 2,
                             .kv_heads = 1,
                             .ffn_width = 8,
                             .vocabulary = 100,
                             .context = 64,
                             .rope_base = 1e4,
                             .rms_eps = 1e-5};

v1::SequenceParams params_of(std::uint64_t seq_id, std::uint32_t tokens) {
  v1::SequenceParams params;
  params.set_seq_id(seq_id);
  params.set_block_size(16);
  for (std::uint32_t token = 0; token < tokens; ++token) params.add_prompt_token_ids(token);
  return params;
}

/// A worker's sequences, which the test changes step by step.
class Told {
 public:
  explicit Told(std::uint32_t blocks = 4) : tables(blocks), sequences(kSizes, tables) {}

  v1::StepInputs& next() {
    step = {};
    step.mutable_scheduler_output()->set_schedule_id(++number);
    return step;
  }
  v1::SequenceScheduleMetadata& part(std::uint64_t seq_id, std::uint32_t position,
                                     std::uint32_t count, std::uint32_t attempt = 0) {
    auto& made = *step.mutable_scheduler_output()->add_seq_schedule_metadata_list();
    made.set_seq_id(seq_id);
    made.set_position(position);
    made.set_num_q_tokens(count);
    made.set_attempt(attempt);
    return made;
  }
  void pending(std::uint64_t seq_id, std::uint32_t token) {
    auto& output = *step.add_pending_step_outputs()->add_sampler_outputs();
    output.set_seq_id(seq_id);
    output.add_output_tokens(token);
  }
  Result<std::vector<Chunk>> apply() { return sequences.apply(step); }
  /// Starts sequence 1 with a prompt of 20 tokens, all computed.
  void begin() {
    *next().add_new_seq_params() = params_of(1, 20);
    part(1, 0, 20);
    ASSERT_TRUE(succeeds(apply()));
  }

  BlockTables tables;
  Sequences sequences;
  v1::StepInputs step;
  std::uint64_t number = 0;
};

TEST(Sequences, PromptsComeInChunksAndTokensAreAppended) {
  Told told;
  *told.next().add_new_seq_params() = params_of(1, 20);
  told.part(1, 0, 12);
  auto chunks = told.apply();
  ASSERT_TRUE(succeeds(chunks));
  EXPECT_EQ(chunks->at(0).last, Chunk::Last::no);
  told.next();
  told.part(1, 12, 8);
  chunks = told.apply();
  ASSERT_TRUE(succeeds(chunks));
  EXPECT_EQ(chunks->at(0).first, 12U);
  EXPECT_EQ(chunks->at(0).last, Chunk::Last::yes);
  told.next();
  told.pending(1, 55);
  told.pending(9, 55);  // the sequence has ended meanwhile
  told.part(1, 20, 1);
  chunks = told.apply();
  ASSERT_TRUE(succeeds(chunks));
  EXPECT_EQ(chunks->at(0).sequence->tokens.back(), 55U);
  EXPECT_EQ(told.tables.blocks_of(1), 2U);
}

TEST(Sequences, EndsAndPreemptionsFreeBlocks) {
  Told told;
  told.begin();
  told.next().mutable_scheduler_output()->add_preempted_seq_ids(1);
  ASSERT_TRUE(succeeds(told.apply()));
  EXPECT_EQ(told.tables.free_blocks(), 4U);
  told.next();
  told.part(1, 0, 20, 1);
  ASSERT_TRUE(succeeds(told.apply()));
  EXPECT_EQ(told.tables.free_blocks(), 2U);
  told.next().mutable_scheduler_output()->add_finished_seqs()->set_seq_id(1);
  ASSERT_TRUE(succeeds(told.apply()));
  EXPECT_EQ(told.tables.free_blocks(), 4U);
  EXPECT_EQ(told.sequences.size(), 0U);
  told.begin();
  told.next().mutable_scheduler_output()->add_ignored_seq_ids(1);
  ASSERT_TRUE(succeeds(told.apply()));
  EXPECT_EQ(told.sequences.size(), 0U);
}

TEST(Sequences, ANewAttemptBeginsAtTheFirstToken) {
  Told told;
  told.begin();
  told.next();
  told.part(1, 0, 5, 1);
  ASSERT_TRUE(succeeds(told.apply()));
  EXPECT_EQ(told.tables.blocks_of(1), 1U);
  told.next();
  told.part(1, 5, 5, 0);
  EXPECT_TRUE(
      fails_with(told.apply(), ErrorCode::divergence, "attempt of sequence 1 is 1 here and 0"));
}

TEST(Sequences, ADifferentPositionIsADivergence) {
  Told told;
  told.begin();
  told.next();
  told.pending(1, 3);
  told.part(1, 19, 1);
  EXPECT_TRUE(
      fails_with(told.apply(), ErrorCode::divergence, "position of sequence 1 is 20 here and 19"));
  told.sequences.clear();
  EXPECT_EQ(told.tables.free_blocks(), 4U);
  told.begin();
}

TEST(Sequences, OtherTokensOrBlocksAreADivergence) {
  Told told;
  told.begin();
  told.next();
  told.part(1, 20, 1);
  EXPECT_TRUE(fails_with(told.apply(), ErrorCode::divergence, "number of known tokens"));
  told.sequences.clear();
  told.begin();
  told.next();
  told.pending(1, 3);
  (*told.part(1, 20, 1).mutable_kvp_group_block_counter())[0] = 3;
  EXPECT_TRUE(fails_with(told.apply(), ErrorCode::divergence,
                         "number of blocks of sequence 1 is 2 here and 3"));
  told.next();
  told.part(8, 0, 1);
  EXPECT_TRUE(fails_with(told.apply(), ErrorCode::divergence, "existence of sequence 8"));
}

TEST(Sequences, WhatCannotRunIsRefused) {
  const auto fault = [](const v1::SequenceParams& params) {
    Told told;
    *told.next().add_new_seq_params() = params;
    const auto chunks = told.apply();
    return chunks.has_value() ? std::string() : chunks.error().detail;
  };
  EXPECT_EQ(fault(params_of(1, 3)), "");
  EXPECT_NE(fault(params_of(1, 0)).find("prompt of sequence 1 is empty"), std::string::npos);
  auto params = params_of(1, 3);
  params.add_prompt_token_ids(100);
  EXPECT_NE(fault(params).find("the token 100; legal is 0 to 99"), std::string::npos);
  params = params_of(1, 3);
  params.set_eos_token_id(100);
  EXPECT_NE(fault(params).find("the token 100"), std::string::npos);
  params = params_of(1, 3);
  params.set_block_size(8);
  EXPECT_NE(fault(params).find("block_size of sequence 1 is 8; legal is 16"), std::string::npos);
  params = params_of(1, 3);
  params.mutable_sampling_params()->set_temperature(-1);
  EXPECT_NE(fault(params).find("sampling_params.temperature"), std::string::npos);
  params = params_of(1, 3);
  params.mutable_sampling_params()->set_top_p(std::numeric_limits<float>::quiet_NaN());
  EXPECT_NE(fault(params).find("sampling_params.top_p"), std::string::npos);
}

TEST(Sequences, OneThatIsTwiceInAStepOrTooLongIsRefused) {
  Told told(8);
  told.begin();
  told.next();
  told.pending(1, 3);
  told.pending(1, 3);
  told.part(1, 20, 1);
  told.part(1, 21, 1);
  EXPECT_TRUE(fails_with(told.apply(), ErrorCode::invalid_argument, "sequence 1 is twice in step"));
  *told.next().add_new_seq_params() = params_of(2, 65);
  told.part(2, 0, 65);
  EXPECT_TRUE(fails_with(told.apply(), ErrorCode::invalid_argument, "a context of 64"));
  *told.next().add_new_seq_params() = params_of(2, 3);
  EXPECT_TRUE(fails_with(told.apply(), ErrorCode::divergence, "is known here and new"));
}

}  // namespace
}  // namespace engine
