// SPDX-License-Identifier: Apache-2.0
// The work of the engine's workers on steps, without arithmetic: the next token is a hash of the
// tokens before it. A step that a real worker would refuse fails the test.
#pragma once

#include <gtest/gtest.h>
#include <tendon/v1/step.pb.h>

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "controller/block_budget.hpp"

namespace engine {

namespace v1 = tendon::v1;

class ModelWorker {
 public:
  static constexpr std::uint32_t kVocabulary = 1000;

  ModelWorker(std::uint32_t blocks, std::uint32_t kv_size) : blocks_(blocks), kv_size_(kv_size) {}

  /// The token after these tokens.
  [[nodiscard]] static std::uint32_t after(const std::vector<std::uint32_t>& tokens) {
    std::uint64_t hash = 1469598103934665603ULL;
    for (const std::uint32_t token : tokens) hash = (hash ^ token) * 1099511628211ULL;
    return static_cast<std::uint32_t>((hash >> 20) % (kVocabulary - 1)) + 1;
  }

  [[nodiscard]] v1::StepOutputs run(const v1::StepInputs& step) {
    const v1::SchedulerOutput& scheduled = step.scheduler_output();
    EXPECT_GT(scheduled.schedule_id(), last_schedule_id_);
    last_schedule_id_ = scheduled.schedule_id();
    for (const auto& params : step.new_seq_params()) {
      Known known;
      known.tokens.assign(params.prompt_token_ids().begin(), params.prompt_token_ids().end());
      EXPECT_TRUE(known_.emplace(params.seq_id(), std::move(known)).second);
    }
    for (const auto& pending : step.pending_step_outputs()) {
      for (const auto& output : pending.sampler_outputs()) {
        const auto at = known_.find(output.seq_id());
        if (at == known_.end()) continue;
        at->second.tokens.insert(at->second.tokens.end(), output.output_tokens().begin(),
                                 output.output_tokens().end());
      }
    }
    for (const auto& finished : scheduled.finished_seqs()) {
      EXPECT_EQ(known_.erase(finished.seq_id()), 1U);
    }
    for (const std::uint64_t seq_id : scheduled.preempted_seq_ids()) known_.at(seq_id).computed = 0;
    v1::StepOutputs outputs;
    outputs.set_schedule_id(scheduled.schedule_id());
    for (const auto& part : scheduled.seq_schedule_metadata_list()) compute(part, outputs);
    for (std::uint32_t rank = 0; rank < kv_size_; ++rank) EXPECT_LE(used(rank), blocks_);
    return outputs;
  }

  /// Forgets the sequences of the previous roster.
  void forget() { known_.clear(); }
  [[nodiscard]] std::size_t sequences() const { return known_.size(); }
  [[nodiscard]] std::uint64_t used() const {
    std::uint64_t sum = 0;
    for (std::uint32_t rank = 0; rank < kv_size_; ++rank) sum += used(rank);
    return sum;
  }

 private:
  struct Known {
    std::vector<std::uint32_t> tokens;
    std::uint32_t computed = 0;
    std::uint32_t attempt = 0;
  };

  void compute(const v1::SequenceScheduleMetadata& part, v1::StepOutputs& outputs) {
    ASSERT_TRUE(known_.contains(part.seq_id())) << part.seq_id();
    Known& known = known_.at(part.seq_id());
    ASSERT_GE(part.attempt(), known.attempt);
    if (part.attempt() > known.attempt) known.computed = 0;
    known.attempt = part.attempt();
    ASSERT_EQ(part.position(), known.computed);
    ASSERT_GE(part.num_q_tokens(), 1U);
    known.computed += part.num_q_tokens();
    ASSERT_LE(known.computed, known.tokens.size());
    for (std::uint32_t rank = 0; rank < kv_size_; ++rank) {
      EXPECT_EQ(part.kvp_group_block_counter().at(rank), blocks_on(rank, known.computed, kv_size_));
    }
    if (known.computed < known.tokens.size()) return;
    v1::SamplerOutput& output = *outputs.add_sampler_outputs();
    output.set_schedule_id(part.schedule_id());
    output.set_seq_id(part.seq_id());
    output.add_output_tokens(after(known.tokens));
  }
  [[nodiscard]] std::uint32_t used(std::uint32_t rank) const {
    std::uint32_t sum = 0;
    for (const auto& [seq_id, known] : known_) sum += blocks_on(rank, known.computed, kv_size_);
    return sum;
  }

  std::uint32_t blocks_;
  std::uint32_t kv_size_;
  std::map<std::uint64_t, Known> known_;
  std::uint64_t last_schedule_id_ = 0;
};

}  // namespace engine
