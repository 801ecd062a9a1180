// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/v1/step.pb.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/block_budget.hpp"
#include "controller/request.hpp"

namespace engine {

/// Every member except the first three has a default.
struct SchedulerLimits {
  std::uint32_t blocks;                   ///< of each KV rank
  std::uint32_t context;                  ///< tokens of a prompt and its output together
  std::uint32_t vocabulary;               ///< every token is below this
  std::optional<std::uint32_t> eos = {};  ///< the token that ends a sequence
  std::uint32_t kv_size = 1;              ///< KV-parallel ranks
  std::uint32_t stages = 1;               ///< of the pipeline: as many steps are in flight
  std::uint32_t step_tokens = 256;
  std::uint32_t step_sequences = 32;
  std::uint32_t queue = 256;  ///< waiting requests
};

/// A lost worker, as the error of its requests names it.
struct LostWorker {
  std::uint32_t rank = 0;
  std::string host;
  std::string cause;
};

/// The present load.
struct SchedulerLoad {
  std::uint64_t waiting = 0;
  std::uint64_t running = 0;
  std::uint64_t blocks = 0;
  std::uint64_t used_blocks = 0;
};

/// Decides which tokens each step computes. It sends nothing and has no clock: its input is
/// requests and outputs, its output steps and notices.
///
/// First come, first served. A step has one token of each running sequence, the oldest first, then
/// parts of prompts. When blocks run out, the youngest sequence releases all its blocks and starts
/// again with the tokens that it has. With several stages, several steps are in flight; a sequence
/// is in one of them at most.
///
/// Workers learn tokens only from pending_step_outputs, and ends only from finished_seqs: a
/// decision takes effect in the next step.
///
/// Owns:    the active sequences.
/// Threads: one.
/// Errors:  protocol_violation, from accept().
/// Blocks:  never.
/// Cost:    a step costs a look at each sequence.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits);

  /// nullopt if the request is queued.
  [[nodiscard]] std::optional<Refusal> submit(Request request);
  /// The client left. An unknown id belongs to a finished request.
  void cancel(std::string_view id);
  /// The client found its stop string in the text.
  void finish(std::string_view id);
  /// Ends all active requests.
  void fail_all(const Failure& failure);

  /// The next step; nullopt if there is no work, or if as many steps are in flight as there are
  /// stages.
  [[nodiscard]] std::optional<v1::StepInputs> next_step();
  /// Takes the outputs of KV rank 0 for a step in flight.
  [[nodiscard]] tendon::Result<void> accept(const v1::StepOutputs& outputs);
  /// Handles the end of a roster: no step is in flight, and new workers know nothing. A running
  /// request that already lost a worker before fails; the others start again.
  void lose_workers(const LostWorker& lost);

  /// Takes the notices for clients, in order.
  [[nodiscard]] std::vector<Notice> take_notices() { return std::exchange(notices_, {}); }
  [[nodiscard]] SchedulerLoad load() const;
  [[nodiscard]] bool is_idle() const { return sequences_.empty() && ended_.empty(); }

 private:
  enum class Place : std::uint8_t { waiting, running };

  struct Sequence {
    std::string name;
    v1::SequenceParams params;
    std::vector<std::uint32_t> output = {};
    std::uint32_t position = 0;  ///< tokens whose keys the workers have
    std::uint32_t attempt = 0;
    Place place = Place::waiting;
    std::uint64_t in_step = 0;  ///< the step in flight that has it; 0: none
    std::uint32_t losses = 0;   ///< lost workers while it ran
    /// True if the workers of this roster know it.
    enum class Heard : std::uint8_t { no, yes } heard = Heard::no;

    [[nodiscard]] std::uint32_t prompt_tokens() const {
      return static_cast<std::uint32_t>(params.prompt_token_ids_size());
    }
    [[nodiscard]] std::uint32_t tokens() const {
      return prompt_tokens() + static_cast<std::uint32_t>(output.size());
    }
    [[nodiscard]] std::uint32_t to_do() const { return tokens() - position; }
  };
  /// Sequences by number, which rises with arrival.
  using Sequences = std::map<std::uint64_t, Sequence>;

  /// One part of a step in flight.
  struct Part {
    std::uint64_t seq_id;
    enum class Gives : std::uint8_t { nothing, a_token } gives;
  };

  /// A step that is being built.
  struct Draft {
    v1::StepInputs inputs;
    std::vector<Part> parts = {};
    std::uint32_t tokens_left;
    std::uint32_t sequences_left;

    [[nodiscard]] v1::SchedulerOutput& output() { return *inputs.mutable_scheduler_output(); }
    [[nodiscard]] bool is_full() const { return tokens_left == 0 || sequences_left == 0; }
  };

  [[nodiscard]] std::optional<Refusal> refusal_of(const Request& request) const;
  [[nodiscard]] std::uint32_t share() const;
  void add_decodes(Draft& draft);
  void add_prompts(Draft& draft);
  void admit_waiting(Draft& draft);
  [[nodiscard]] bool may_run(const Sequence& sequence) const;
  void add(Draft& draft, std::uint64_t seq_id, Sequence& sequence);
  [[nodiscard]] bool make_room(Draft& draft, std::uint64_t seq_id, std::uint32_t tokens);
  void begin_anew(Sequence& sequence);
  void take_token(std::uint64_t seq_id, Sequence& sequence, const v1::SamplerOutput& output);
  void end(Sequences::iterator at, v1::FinishReason reason, Failure failure = {});
  [[nodiscard]] Sequences::iterator find(std::string_view id);
  [[nodiscard]] std::uint64_t count(Place place) const;

  const SchedulerLimits limits_;
  BlockBudget budget_;
  Sequences sequences_;
  std::unordered_map<std::string, std::uint64_t> numbers_;  ///< by the client's id
  std::map<std::uint64_t, std::vector<Part>> in_flight_;    ///< by schedule_id
  /// Data for the workers in the next step.
  std::vector<v1::PendingStepOutput> pending_;
  std::vector<v1::FinishedSequence> ended_;
  std::vector<Notice> notices_;
  std::uint64_t last_seq_id_ = 0;
  std::uint64_t last_schedule_id_ = 0;
};

}  // namespace engine
