// SPDX-License-Identifier: Apache-2.0
#include "worker/stage_runner.hpp"

#include <optional>
#include <tendon/tensor/tensor.hpp>
#include <utility>

#include "worker/sampler.hpp"

namespace engine {

tendon::Result<v1::StepOutputs> StageRunner::run(const v1::StepInputs& step) {
  const std::uint64_t schedule_id = step.scheduler_output().schedule_id();
  receiver_.begin(step);
  TENDON_TRY(chunks, sequences_.apply(step));
  TENDON_TRY(logits, compute(chunks));
  v1::StepOutputs outputs;
  outputs.set_schedule_id(schedule_id);
  auto its = logits.begin();
  for (const Chunk& chunk : chunks) {
    if (chunk.last == Chunk::Last::no) continue;
    Chosen chosen = choose(*chunk.sequence, *its++);
    v1::SamplerOutput& output = *outputs.add_sampler_outputs();
    output.set_schedule_id(schedule_id);
    output.set_seq_id(chunk.sequence->params.seq_id());
    output.add_output_tokens(chosen.token);
    if (chosen.logprobs) *output.add_logprobs() = *std::move(chosen.logprobs);
  }
  outputs.set_tokens_hash(tokens_hash(outputs));
  *outputs.mutable_step_ns() = receiver_.end();
  return outputs;
}

tendon::Result<std::vector<std::vector<double>>> StageRunner::compute(
    const std::vector<Chunk>& chunks) {
  std::vector<std::vector<double>> logits;
  if (chunks.empty()) return logits;
  std::vector<Piece> pieces;
  std::int64_t count = 0;
  for (const Chunk& chunk : chunks) {
    pieces.push_back(
        {.first = chunk.first,
         .count = chunk.count,
         .runs = tables_.runs(chunk.sequence->params.seq_id(), chunk.first + chunk.count),
         .logits =
             chunk.last == Chunk::Last::yes ? Piece::Logits::of_last_row : Piece::Logits::no});
    count += chunk.count;
  }
  TENDON_TRY(rows, tendon::Tensor::empty(stage_->dtype(), {count, config_.width}));
  TENDON_CHECK(receiver_.receive(rows));
  logits = stage_->forward(rows, pieces);
  return logits;
}

}  // namespace engine
