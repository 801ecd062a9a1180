// SPDX-License-Identifier: Apache-2.0
// A worker's state of sequences, from StepInputs alone, as in sequences.py.
#pragma once

#include <tendon/v1/step.pb.h>

#include <cstdint>
#include <map>
#include <tendon/core/result.hpp>
#include <vector>

#include "worker/block_tables.hpp"
#include "worker/llama_config.hpp"

namespace engine {

namespace v1 = tendon::v1;

/// The known tokens, and how many of them have their keys in the cache.
struct Sequence {
  v1::SequenceParams params;
  std::vector<std::uint32_t> tokens;
  std::uint32_t computed = 0;
  std::uint32_t attempt = 0;

  [[nodiscard]] std::size_t prompt_count() const {
    return static_cast<std::size_t>(params.prompt_token_ids_size());
  }
};

/// The tokens [first, first + count) of a sequence, computed in this step.
struct Chunk {
  enum class Last : std::uint8_t { no, yes };

  const Sequence* sequence = nullptr;  ///< valid until the next step
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  Last last = Last::no;  ///< they are its last known ones: the next token is chosen
};

/// All sequences that the controller has announced and not ended. It never checks whether a
/// sequence has ended.
///
/// Owns:    the sequences; their blocks are in the tables.
/// Threads: one.
/// Errors:  divergence if controller and worker differ about a sequence; invalid_argument,
///          resource_exhausted. The step is then half applied: call clear() before the next.
/// Blocks:  never.
/// Cost:    in proportion to the size of the step.
class Sequences {
 public:
  /// Both arguments outlive this object.
  Sequences(const LlamaConfig& config, BlockTables& tables) : config_(config), tables_(tables) {}

  /// The chunks of this step. Order: new sequences, pending outputs, ends, preemptions, schedule.
  [[nodiscard]] tendon::Result<std::vector<Chunk>> apply(const v1::StepInputs& step);
  /// Forgets all sequences and frees their blocks.
  void clear();
  [[nodiscard]] std::size_t size() const { return known_.size(); }

 private:
  [[nodiscard]] tendon::Result<void> admit(const v1::SequenceParams& params);
  [[nodiscard]] tendon::Result<void> append(const v1::SamplerOutput& output);
  [[nodiscard]] tendon::Result<Sequence*> known(std::uint64_t seq_id);
  [[nodiscard]] tendon::Result<void> check_token(std::uint64_t seq_id, std::uint32_t token) const;
  [[nodiscard]] tendon::Result<Chunk> chunk_of(const v1::SequenceScheduleMetadata& part);
  void forget(std::uint64_t seq_id);
  void begin_anew(Sequence& sequence);

  const LlamaConfig& config_;
  BlockTables& tables_;
  std::map<std::uint64_t, Sequence> known_;
};

}  // namespace engine
