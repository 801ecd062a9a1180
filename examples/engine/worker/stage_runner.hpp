// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/v1/step.pb.h>

#include <cstdint>
#include <memory>
#include <tendon/control/worker.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "worker/block_tables.hpp"
#include "worker/llama_config.hpp"
#include "worker/sequences.hpp"
#include "worker/stage.hpp"
#include "worker/stage_receiver.hpp"

namespace engine {

/// Runs steps on the last stage: StepInputs in, StepOutputs out.
///
/// Owns:    the stage's arithmetic, its sequences and their blocks.
/// Threads: one.
/// Errors:  run(): those of Sequences and StageReceiver. The step is then half applied: call
///          reset() before the next; the controller must admit every sequence again.
/// Blocks:  run(), for the stage before, until the step's deadline.
/// Cost:    that of Stage.
class StageRunner {
 public:
  StageRunner(const LlamaConfig& config, std::unique_ptr<Stage> stage, tendon::WorkerGroups groups,
              std::uint32_t blocks)
      : config_(config),
        stage_(std::move(stage)),
        receiver_(std::move(groups)),
        tables_(blocks),
        sequences_(config_, tables_) {}
  StageRunner(const StageRunner&) = delete;
  StageRunner& operator=(const StageRunner&) = delete;

  [[nodiscard]] tendon::Result<v1::StepOutputs> run(const v1::StepInputs& step);
  /// Forgets all sequences and frees all blocks.
  void reset() { sequences_.clear(); }
  /// Continues in the groups of another roster.
  void regroup(tendon::WorkerGroups groups) { receiver_.regroup(std::move(groups)); }

 private:
  [[nodiscard]] tendon::Result<std::vector<std::vector<double>>> compute(
      const std::vector<Chunk>& chunks);

  LlamaConfig config_;
  std::unique_ptr<Stage> stage_;
  StageReceiver receiver_;
  BlockTables tables_;
  Sequences sequences_;
};

}  // namespace engine
