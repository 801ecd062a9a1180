// SPDX-License-Identifier: Apache-2.0
#include "controller/scheduler.hpp"

#include <algorithm>

namespace engine {
namespace {

tendon::Error wrong_outputs(std::uint64_t schedule_id, const std::string& what) {
  return {tendon::ErrorCode::protocol_violation, "engine.scheduler",
          "outputs of step " + std::to_string(schedule_id) + ": " + what};
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits)
    : limits_(limits), budget_(limits.blocks, limits.kv_size) {}

// --- Requests

std::optional<Refusal> Scheduler::refusal_of(const Request& request) const {
  const auto refuse = [](RefusalCode code, std::string text) {
    return Refusal{code, std::move(text)};
  };
  if (request.prompt.empty()) {
    return refuse(RefusalCode::malformed, "prompt: it is empty; legal is one token or more");
  }
  for (const std::uint32_t token : request.prompt) {
    if (token >= limits_.vocabulary) {
      return refuse(RefusalCode::malformed, "prompt: it has the token " + std::to_string(token) +
                                                "; legal is 0 to " +
                                                std::to_string(limits_.vocabulary - 1));
    }
  }
  if (numbers_.contains(request.id)) {
    return refuse(RefusalCode::duplicate_id,
                  "id: a request of this id is not done; give each an id of its own");
  }
  if (request.prompt.size() >= limits_.context) {
    return refuse(RefusalCode::context_too_long,
                  "prompt: it has " + std::to_string(request.prompt.size()) +
                      " tokens, and the context holds " + std::to_string(limits_.context) +
                      " with at least one of the output; shorten it");
  }
  // The keys of the last token are never computed.
  const std::uint64_t longest = std::min<std::uint64_t>(
      limits_.context, request.prompt.size() + request.sampling.max_tokens());
  if (!budget_.could_hold(static_cast<std::uint32_t>(longest - 1))) {
    return refuse(RefusalCode::memory_too_small,
                  "prompt and max_tokens: keys of " + std::to_string(longest - 1) +
                      " tokens do not fit in " + std::to_string(budget_.total()) + " blocks of " +
                      std::to_string(kBlockTokens) +
                      "; ask for fewer tokens, or start the engine with more blocks");
  }
  if (count(Place::waiting) >= limits_.queue) {
    return refuse(RefusalCode::queue_full,
                  std::to_string(limits_.queue) + " requests wait already; try again later");
  }
  return std::nullopt;
}

std::optional<Refusal> Scheduler::submit(Request request) {
  if (auto refusal = refusal_of(request)) return refusal;
  const std::uint64_t seq_id = ++last_seq_id_;
  v1::SequenceParams params;
  params.set_seq_id(seq_id);
  params.mutable_prompt_token_ids()->Assign(request.prompt.begin(), request.prompt.end());
  params.set_block_size(kBlockTokens);
  params.set_eos_token_id(limits_.eos.value_or(0));
  params.set_arrival_time(request.arrival_ns);
  *params.mutable_sampling_params() = std::move(request.sampling);
  numbers_.emplace(request.id, seq_id);
  sequences_.emplace(seq_id, Sequence{.name = std::move(request.id), .params = std::move(params)});
  return std::nullopt;
}

Scheduler::Sequences::iterator Scheduler::find(std::string_view id) {
  const auto number = numbers_.find(std::string(id));
  return number == numbers_.end() ? sequences_.end() : sequences_.find(number->second);
}

void Scheduler::cancel(std::string_view id) {
  if (const auto at = find(id); at != sequences_.end()) end(at, v1::FINISH_REASON_CANCELLED);
}

void Scheduler::finish(std::string_view id) {
  if (const auto at = find(id); at != sequences_.end()) end(at, v1::FINISH_REASON_STOP);
}

void Scheduler::fail_all(const Failure& failure) {
  while (!sequences_.empty()) end(sequences_.begin(), v1::FINISH_REASON_FAILED, failure);
}

void Scheduler::end(Sequences::iterator at, v1::FinishReason reason, Failure failure) {
  const auto& [seq_id, sequence] = *at;
  budget_.give_back(sequence.position);
  if (sequence.heard == Sequence::Heard::yes) {
    v1::FinishedSequence& ended = ended_.emplace_back();
    ended.set_seq_id(seq_id);
    ended.set_reason(reason);
  }
  notices_.emplace_back(Done{.id = sequence.name,
                             .reason = reason,
                             .failure = std::move(failure),
                             .prompt_tokens = sequence.prompt_tokens(),
                             .completion_tokens = sequence.output.size()});
  numbers_.erase(sequence.name);
  sequences_.erase(at);
}

std::uint64_t Scheduler::count(Place place) const {
  return static_cast<std::uint64_t>(std::ranges::count_if(
      sequences_, [place](const auto& each) { return each.second.place == place; }));
}

SchedulerLoad Scheduler::load() const {
  return {.waiting = count(Place::waiting),
          .running = count(Place::running),
          .blocks = budget_.total(),
          .used_blocks = budget_.used()};
}

// --- Steps

std::optional<v1::StepInputs> Scheduler::next_step() {
  if (in_flight_.size() >= limits_.stages) return std::nullopt;
  Draft draft{.inputs = {}, .tokens_left = limits_.step_tokens, .sequences_left = share()};
  const std::uint64_t schedule_id = last_schedule_id_ + 1;
  draft.output().set_schedule_id(schedule_id);
  add_decodes(draft);
  add_prompts(draft);
  admit_waiting(draft);
  if (draft.parts.empty() && ended_.empty()) return std::nullopt;
  last_schedule_id_ = schedule_id;
  for (v1::PendingStepOutput& pending : std::exchange(pending_, {})) {
    *draft.inputs.add_pending_step_outputs() = std::move(pending);
  }
  for (v1::FinishedSequence& ended : std::exchange(ended_, {})) {
    *draft.output().add_finished_seqs() = std::move(ended);
  }
  in_flight_.emplace(schedule_id, std::move(draft.parts));
  return std::move(draft.inputs);
}

/// The sequences that one step may have, so that some are left for each stage.
std::uint32_t Scheduler::share() const {
  const std::uint64_t all = sequences_.size();
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
      (all + limits_.stages - 1) / limits_.stages, 1, limits_.step_sequences));
}

void Scheduler::add_decodes(Draft& draft) {
  for (auto& [seq_id, sequence] : sequences_) {
    if (draft.is_full()) return;
    if (may_run(sequence) && sequence.to_do() == 1 && make_room(draft, seq_id, 1)) {
      add(draft, seq_id, sequence);
    }
  }
}

void Scheduler::add_prompts(Draft& draft) {
  for (auto& [seq_id, sequence] : sequences_) {
    if (draft.is_full()) return;
    if (may_run(sequence) && sequence.to_do() > 1 &&
        make_room(draft, seq_id, std::min(sequence.to_do(), draft.tokens_left))) {
      add(draft, seq_id, sequence);
    }
  }
}

bool Scheduler::may_run(const Sequence& sequence) const {
  return sequence.place == Place::running && sequence.in_step == 0;
}

/// Admits in the order of arrival, while there is room for all present tokens of the admitted and
/// the running sequences: otherwise a new one would soon be preempted.
void Scheduler::admit_waiting(Draft& draft) {
  BlockBudget::Growth growth(budget_);
  std::uint64_t running = 0;
  for (const auto& [seq_id, sequence] : sequences_) {
    if (sequence.place != Place::running) continue;
    growth.add(sequence.position, sequence.tokens());
    ++running;
  }
  for (auto& [seq_id, sequence] : sequences_) {
    if (sequence.place != Place::waiting) continue;
    if (draft.is_full() || running == std::uint64_t{limits_.step_sequences} * limits_.stages)
      return;
    // The sequence was preempted, and its last step is still running.
    if (sequence.in_step != 0) return;
    BlockBudget::Growth with_it = growth;
    with_it.add(0, sequence.tokens());
    if (!budget_.has_room(with_it)) return;
    sequence.place = Place::running;
    ++running;
    add(draft, seq_id, sequence);
    growth.add(sequence.position, sequence.tokens());
  }
}

void Scheduler::add(Draft& draft, std::uint64_t seq_id, Sequence& sequence) {
  const std::uint64_t schedule_id = draft.output().schedule_id();
  if (sequence.heard == Sequence::Heard::no) {
    sequence.heard = Sequence::Heard::yes;
    *draft.inputs.add_new_seq_params() = sequence.params;
    if (!sequence.output.empty()) {
      // The workers that knew its output have ended.
      v1::PendingStepOutput& pending = *draft.inputs.add_pending_step_outputs();
      pending.mutable_scheduler_output()->set_schedule_id(schedule_id);
      v1::SamplerOutput& output = *pending.add_sampler_outputs();
      output.set_schedule_id(schedule_id);
      output.set_seq_id(seq_id);
      output.mutable_output_tokens()->Assign(sequence.output.begin(), sequence.output.end());
    }
  }
  const std::uint32_t taken = std::min(sequence.to_do(), draft.tokens_left);
  const std::uint32_t end = sequence.position + taken;
  v1::SequenceScheduleMetadata& part = *draft.output().add_seq_schedule_metadata_list();
  part.set_schedule_id(schedule_id);
  part.set_seq_id(seq_id);
  part.set_num_q_tokens(taken);
  part.set_position(sequence.position);
  part.set_attempt(sequence.attempt);
  part.set_is_kvp_request(limits_.kv_size > 1);
  for (std::uint32_t rank = 0; rank < limits_.kv_size; ++rank) {
    (*part.mutable_kvp_group_block_counter())[rank] = blocks_on(rank, end, limits_.kv_size);
  }
  budget_.grow(sequence.position, end);
  sequence.position = end;
  sequence.in_step = schedule_id;
  draft.parts.push_back(
      {seq_id, sequence.to_do() == 0 ? Part::Gives::a_token : Part::Gives::nothing});
  draft.tokens_left -= taken;
  --draft.sequences_left;
}

/// Preempts as many younger sequences as necessary, the youngest first, or none. A sequence that is
/// already part of this step is not preempted, so one without room may have to wait for the next
/// step.
bool Scheduler::make_room(Draft& draft, std::uint64_t seq_id, std::uint32_t tokens) {
  const Sequence& wanting = sequences_.at(seq_id);
  BlockBudget after = budget_;
  std::vector<std::uint64_t> victims;
  for (auto at = sequences_.rbegin(); !after.has_room(wanting.position, wanting.position + tokens);
       ++at) {
    const auto& [younger, sequence] = *at;
    if (younger <= seq_id) return false;
    if (sequence.position == 0 || sequence.in_step == draft.output().schedule_id()) continue;
    after.give_back(sequence.position);
    victims.push_back(younger);
  }
  for (const std::uint64_t victim : victims) {
    draft.output().add_preempted_seq_ids(victim);
    begin_anew(sequences_.at(victim));
  }
  return true;
}

void Scheduler::begin_anew(Sequence& sequence) {
  budget_.give_back(std::exchange(sequence.position, 0));
  ++sequence.attempt;
  sequence.place = Place::waiting;
}

// --- Outputs

tendon::Result<void> Scheduler::accept(const v1::StepOutputs& outputs) {
  const auto step = in_flight_.find(outputs.schedule_id());
  if (step == in_flight_.end()) {
    return wrong_outputs(outputs.schedule_id(), "it is not in flight");
  }
  std::vector<const v1::SamplerOutput*> by_part;
  int next = 0;
  for (const Part& part : step->second) {
    by_part.push_back(nullptr);
    if (part.gives == Part::Gives::nothing) continue;
    if (next == outputs.sampler_outputs_size()) {
      return wrong_outputs(step->first,
                           "there is none for sequence " + std::to_string(part.seq_id));
    }
    const v1::SamplerOutput& output = outputs.sampler_outputs(next++);
    if (output.seq_id() != part.seq_id || output.output_tokens_size() != 1 ||
        output.output_tokens(0) >= limits_.vocabulary) {
      return wrong_outputs(step->first, "one token of the vocabulary is expected for sequence " +
                                            std::to_string(part.seq_id));
    }
    by_part.back() = &output;
  }
  if (next != outputs.sampler_outputs_size()) {
    return wrong_outputs(step->first, "there are more than sequences that end");
  }
  const std::vector<Part> parts = std::move(in_flight_.extract(step).mapped());
  for (std::size_t index = 0; index < parts.size(); ++index) {
    const auto at = sequences_.find(parts[index].seq_id);
    if (at == sequences_.end()) continue;  // the sequence ended meanwhile
    at->second.in_step = 0;
    if (by_part[index] != nullptr) take_token(at->first, at->second, *by_part[index]);
  }
  return {};
}

void Scheduler::take_token(std::uint64_t seq_id, Sequence& sequence,
                           const v1::SamplerOutput& output) {
  const std::uint32_t token = output.output_tokens(0);
  const v1::SamplingParams& sampling = sequence.params.sampling_params();
  if (limits_.eos == token && !sampling.ignore_eos()) {
    return end(sequences_.find(seq_id), v1::FINISH_REASON_STOP);
  }
  sequence.output.push_back(token);
  NewTokens& told =
      std::get<NewTokens>(notices_.emplace_back(NewTokens{.id = sequence.name, .tokens = {token}}));
  told.logprobs.assign(output.logprobs().begin(), output.logprobs().end());
  if (sequence.output.size() >= sampling.max_tokens() || sequence.tokens() >= limits_.context) {
    return end(sequences_.find(seq_id), v1::FINISH_REASON_LENGTH);
  }
  if (pending_.empty() ||
      pending_.back().scheduler_output().schedule_id() != output.schedule_id()) {
    pending_.emplace_back().mutable_scheduler_output()->set_schedule_id(output.schedule_id());
  }
  v1::SamplerOutput& pending = *pending_.back().add_sampler_outputs();
  pending.set_schedule_id(output.schedule_id());
  pending.set_seq_id(seq_id);
  pending.add_output_tokens(token);
}

void Scheduler::lose_workers(const LostWorker& lost) {
  in_flight_.clear();
  pending_.clear();
  for (auto at = sequences_.begin(); at != sequences_.end();) {
    Sequence& sequence = at->second;
    sequence.heard = Sequence::Heard::no;
    sequence.in_step = 0;
    if (sequence.place == Place::running) {
      begin_anew(sequence);
      ++sequence.losses;
    }
    const auto next = std::next(at);
    if (sequence.losses >= 2) {
      end(at, v1::FINISH_REASON_FAILED,
          {.code = "worker_lost",
           .message =
               "rank " + std::to_string(lost.rank) + " on host " + lost.host +
               " was lost while this request ran, after another loss before: " + lost.cause});
    }
    at = next;
  }
  // The new workers do not know the ended sequences.
  ended_.clear();
}

}  // namespace engine
