// SPDX-License-Identifier: Apache-2.0
#include "control/machine/step_ledger.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace tendon::v0::detail {

std::vector<GlobalRank> output_ranks(const ParallelLayout& layout) {
  std::vector<GlobalRank> ranks;
  for (std::uint32_t kv = 0; kv < layout.sizes().kv; ++kv) {
    ranks.push_back(
        layout.rank_of({.tensor = 0, .pipeline = layout.sizes().pipeline - 1, .kv = kv}).value());
  }
  return ranks;
}

std::string text_of(const std::vector<GlobalRank>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i].value);
  }
  return text;
}

bool StepLedger::add(StepOutputs outputs) {
  const auto step = steps_.find(outputs.schedule_id);
  if (step == steps_.end() || std::ranges::find(senders_, outputs.rank) == senders_.end()) {
    return false;
  }
  const GlobalRank rank = outputs.rank;
  if (!step->second.outputs.emplace(rank, std::move(outputs)).second) return false;
  if (is_complete(step->second)) --in_flight_;
  return true;
}

bool StepLedger::add_microbatch(std::uint64_t schedule_id) {
  const auto step = steps_.find(schedule_id);
  if (step == steps_.end()) return false;
  step->second.microbatch = true;
  return true;
}

std::uint64_t StepLedger::sequence_of(std::uint64_t schedule_id) const {
  const Record* const step = find(schedule_id);
  return step == nullptr ? 0 : step->sequence;
}

bool StepLedger::is_complete(std::uint64_t schedule_id) const {
  const Record* const step = find(schedule_id);
  return step != nullptr && is_complete(*step);
}

bool StepLedger::has_outputs(std::uint64_t schedule_id, GlobalRank rank) const {
  if (std::ranges::find(senders_, rank) == senders_.end()) return false;
  const Record* const step = find(schedule_id);
  return step == nullptr || step->outputs.contains(rank);
}

bool StepLedger::has_microbatch(std::uint64_t schedule_id) const {
  const Record* const step = find(schedule_id);
  return step != nullptr && step->microbatch;
}

std::vector<GlobalRank> StepLedger::missing(std::uint64_t schedule_id) const {
  const Record* const step = find(schedule_id);
  std::vector<GlobalRank> ranks = step == nullptr ? std::vector<GlobalRank>() : senders_;
  std::erase_if(ranks, [&](GlobalRank rank) { return step->outputs.contains(rank); });
  return ranks;
}

std::string StepLedger::why_busy() const {
  const auto left = in_flight();
  return std::to_string(left.size()) + " steps are in flight, the oldest is " +
         std::to_string(left.front()) + ", which waits for " + text_of(missing(left.front()));
}

std::vector<std::uint64_t> StepLedger::in_flight() const {
  std::vector<std::uint64_t> found;
  for (const auto& [schedule_id, record] : steps_) {
    if (!is_complete(record)) found.push_back(schedule_id);
  }
  return found;
}

Result<std::vector<StepOutputs>> StepLedger::collect(std::uint64_t schedule_id) {
  const auto step = steps_.find(schedule_id);
  if (step == steps_.end() || !is_complete(step->second)) {
    return Error{ErrorCode::invalid_argument, "control.collect",
                 "step " + std::to_string(schedule_id) + " is not in flight"};
  }
  std::vector<StepOutputs> outputs;
  for (auto& [rank, of_rank] : step->second.outputs) outputs.push_back(std::move(of_rank));
  steps_.erase(step);
  for (const StepOutputs& other : outputs) {
    if (other.agreement == outputs.front().agreement) continue;
    return Error{ErrorCode::divergence, "control.collect",
                 "step " + std::to_string(schedule_id) + ": rank " +
                     std::to_string(outputs.front().rank.value) + " says " +
                     std::to_string(outputs.front().agreement) + ", rank " +
                     std::to_string(other.rank.value) + " says " + std::to_string(other.agreement)};
  }
  return outputs;
}

void StepLedger::put_back(std::vector<StepOutputs> outputs) {
  if (outputs.empty()) return;
  Record& record = steps_[outputs.front().schedule_id];
  record.microbatch = true;  // it arrived before the outputs
  for (StepOutputs& one : outputs) {
    const GlobalRank rank = one.rank;
    record.outputs.emplace(rank, std::move(one));
  }
}

std::uint64_t StepLedger::clear() {
  std::uint64_t dropped = 0;
  for (const auto& [schedule_id, record] : steps_) {
    if (!is_complete(record)) dropped += record.outputs.size();
  }
  steps_.clear();
  in_flight_ = 0;
  return dropped;
}

}  // namespace tendon::v0::detail
