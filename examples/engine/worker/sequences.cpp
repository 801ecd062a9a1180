// SPDX-License-Identifier: Apache-2.0
#include "worker/sequences.hpp"

#include <set>
#include <string>
#include <tendon/core/error.hpp>

#include "controller/block_budget.hpp"
#include "worker/sampler.hpp"

namespace engine {
namespace {

using tendon::Error;
using tendon::ErrorCode;
using tendon::Result;

Error wrong_step(const std::string& text) {
  return {ErrorCode::invalid_argument, "engine.step", "StepInputs: " + text};
}

Error diverged(std::uint64_t seq_id, const std::string& what, const std::string& mine,
               const std::string& yours) {
  return {ErrorCode::divergence, "engine.step",
          what + " of sequence " + std::to_string(seq_id) + " is " + mine + " here and " + yours +
              " in StepInputs; free all sequences and admit them again"};
}
Error diverged(std::uint64_t seq_id, const std::string& what, std::uint64_t mine,
               std::uint64_t yours) {
  return diverged(seq_id, what, std::to_string(mine), std::to_string(yours));
}

}  // namespace

Result<std::vector<Chunk>> Sequences::apply(const v1::StepInputs& step) {
  const v1::SchedulerOutput& scheduled = step.scheduler_output();
  for (const v1::SequenceParams& params : step.new_seq_params()) TENDON_CHECK(admit(params));
  for (const v1::PendingStepOutput& pending : step.pending_step_outputs()) {
    for (const v1::SamplerOutput& output : pending.sampler_outputs()) TENDON_CHECK(append(output));
  }
  for (const std::uint64_t seq_id : scheduled.ignored_seq_ids()) forget(seq_id);
  for (const v1::FinishedSequence& finished : scheduled.finished_seqs()) forget(finished.seq_id());
  for (const std::uint64_t seq_id : scheduled.preempted_seq_ids()) {
    TENDON_TRY(sequence, known(seq_id));
    begin_anew(*sequence);
  }
  std::set<std::uint64_t> seen;
  std::vector<Chunk> chunks;
  for (const v1::SequenceScheduleMetadata& part : scheduled.seq_schedule_metadata_list()) {
    if (!seen.insert(part.seq_id()).second) {
      return wrong_step("sequence " + std::to_string(part.seq_id()) + " is twice in step " +
                        std::to_string(scheduled.schedule_id()) + "; legal is once");
    }
    TENDON_TRY(chunk, chunk_of(part));
    chunks.push_back(chunk);
  }
  return chunks;
}

void Sequences::clear() {
  known_.clear();
  tables_.clear();
}

Result<void> Sequences::admit(const v1::SequenceParams& params) {
  const std::uint64_t seq_id = params.seq_id();
  if (known_.contains(seq_id)) return diverged(seq_id, "existence", "known", "new");
  if (params.prompt_token_ids().empty()) {
    return wrong_step("the prompt of sequence " + std::to_string(seq_id) +
                      " is empty; legal is one token or more");
  }
  if (params.block_size() != kBlockTokens) {
    return wrong_step("block_size of sequence " + std::to_string(seq_id) + " is " +
                      std::to_string(params.block_size()) + "; legal is " +
                      std::to_string(kBlockTokens));
  }
  for (const std::uint32_t token : params.prompt_token_ids()) {
    TENDON_CHECK(check_token(seq_id, token));
  }
  TENDON_CHECK(check_token(seq_id, params.eos_token_id()));
  TENDON_CHECK(check_sampling(params.sampling_params()));
  Sequence made{.params = params, .tokens = {}};
  made.tokens.assign(params.prompt_token_ids().begin(), params.prompt_token_ids().end());
  known_.emplace(seq_id, std::move(made));
  return {};
}

Result<void> Sequences::append(const v1::SamplerOutput& output) {
  // A sequence that ended during its last step is unknown now.
  const auto at = known_.find(output.seq_id());
  if (at == known_.end()) return {};
  for (const std::uint32_t token : output.output_tokens()) {
    TENDON_CHECK(check_token(output.seq_id(), token));
    at->second.tokens.push_back(token);
  }
  return {};
}

Result<Sequence*> Sequences::known(std::uint64_t seq_id) {
  const auto at = known_.find(seq_id);
  if (at == known_.end()) return diverged(seq_id, "existence", "unknown", "known");
  return &at->second;
}

Result<void> Sequences::check_token(std::uint64_t seq_id, std::uint32_t token) const {
  if (token < config_.vocabulary) return {};
  return wrong_step("sequence " + std::to_string(seq_id) + " has the token " +
                    std::to_string(token) + "; legal is 0 to " +
                    std::to_string(config_.vocabulary - 1));
}

Result<Chunk> Sequences::chunk_of(const v1::SequenceScheduleMetadata& part) {
  const std::uint64_t seq_id = part.seq_id();
  TENDON_TRY(sequence, known(seq_id));
  if (part.attempt() < sequence->attempt) {
    return diverged(seq_id, "attempt", sequence->attempt, part.attempt());
  }
  if (part.attempt() > sequence->attempt) {
    sequence->attempt = part.attempt();
    begin_anew(*sequence);
  }
  if (part.position() != sequence->computed) {
    return diverged(seq_id, "position", sequence->computed, part.position());
  }
  const std::uint64_t end = std::uint64_t{part.position()} + part.num_q_tokens();
  if (part.num_q_tokens() == 0 || end > sequence->tokens.size()) {
    return diverged(seq_id, "number of known tokens", sequence->tokens.size(), end);
  }
  if (end > config_.context) {
    return wrong_step("sequence " + std::to_string(seq_id) + " would have " + std::to_string(end) +
                      " tokens; legal is a context of " + std::to_string(config_.context));
  }
  TENDON_CHECK(tables_.extend(seq_id, static_cast<std::uint32_t>(end)));
  const auto& counters = part.kvp_group_block_counter();
  if (const auto yours = counters.find(0);
      yours != counters.end() && yours->second != tables_.blocks_of(seq_id)) {
    return diverged(seq_id, "number of blocks", tables_.blocks_of(seq_id), yours->second);
  }
  sequence->computed = static_cast<std::uint32_t>(end);
  return Chunk{.sequence = sequence,
               .first = part.position(),
               .count = part.num_q_tokens(),
               .last = end == sequence->tokens.size() ? Chunk::Last::yes : Chunk::Last::no};
}

void Sequences::forget(std::uint64_t seq_id) {
  known_.erase(seq_id);
  tables_.free(seq_id);
}

void Sequences::begin_anew(Sequence& sequence) {
  tables_.free(sequence.params.seq_id());
  sequence.computed = 0;
}

}  // namespace engine
