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
  const auto step = steps_.find(schedule_id);
  return step == steps_.end() ? 0 : step->second.sequence;
}

bool StepLedger::is_complete(std::uint64_t schedule_id) const {
  const auto step = steps_.find(schedule_id);
  return step != steps_.end() && is_complete(step->second);
}

bool StepLedger::has_outputs(std::uint64_t schedule_id, GlobalRank rank) const {
  if (std::ranges::find(senders_, rank) == senders_.end()) return false;
  const auto step = steps_.find(schedule_id);
  return step == steps_.end() || step->second.outputs.contains(rank);
}

bool StepLedger::has_microbatch(std::uint64_t schedule_id) const {
  const auto step = steps_.find(schedule_id);
  return step != steps_.end() && step->second.microbatch;
}

std::vector<GlobalRank> StepLedger::missing(std::uint64_t schedule_id) const {
  std::vector<GlobalRank> ranks;
  const auto step = steps_.find(schedule_id);
  if (step == steps_.end()) return ranks;
  for (const GlobalRank rank : senders_) {
    if (!step->second.outputs.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
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
  record.microbatch = true;  // it came before the outputs
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
