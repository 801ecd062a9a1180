// SPDX-License-Identifier: Apache-2.0
#include "group/membership/early_words.hpp"

#include <utility>

namespace tendon::v0::detail {

bool EarlyWords::keep(AbortWord word) {
  const auto known = aborts_.find(word.envelope.epoch);
  if (known == aborts_.end() && aborts_.size() >= kMostEarlyEpochs) return false;
  if (known == aborts_.end())
    aborts_.emplace(word.envelope.epoch, std::move(word));
  else if (word.envelope.sequence < known->second.envelope.sequence)
    known->second = std::move(word);
  return true;
}

bool EarlyWords::keep(GroupPlace place, InboundMessage&& inbound) {
  const std::uint64_t number = inbound.envelope.epoch;
  if (!steps_.contains(number) && steps_.size() >= kMostEarlyEpochs) return false;
  // Nothing takes it before this member enters, which may need words of the same link: the link
  // must not wait for that.
  inbound.held.give_back();
  const std::uint64_t cost = cost_of(inbound);
  if (cost <= kMostEarlyStepBytes - size_bytes()) {
    size_bytes_ += cost;
    steps_[number].push_back({place, std::move(inbound)});
    return true;
  }
  AbortWord word;
  word.envelope = {.kind = EnvelopeKind::abort,
                   .from = self_,
                   .epoch = number,
                   .sequence = operation_number(inbound.envelope),
                   .extra = self_.value};
  word.text = "more than " + std::to_string(kMostEarlyStepBytes >> 20) +
              " MiB of collectives came before it had entered the epoch that they are of";
  return keep(std::move(word));
}

EarlyWords::OfEpoch EarlyWords::take(std::uint64_t number) {
  OfEpoch found;
  if (const auto abort = aborts_.find(number); abort != aborts_.end())
    found.abort = std::move(abort->second);
  if (const auto steps = steps_.find(number); steps != steps_.end())
    found.steps = std::move(steps->second);
  std::erase_if(aborts_, [&](const auto& entry) { return entry.first <= number; });
  std::erase_if(steps_, [&](const auto& entry) { return entry.first <= number; });
  // Counted until the next epoch begins: they may wait in this one as long.
  size_bytes_ = 0;
  for (const Step& step : found.steps) size_bytes_ += cost_of(step.inbound);
  for (const auto& [epoch, steps] : steps_)
    for (const Step& step : steps) size_bytes_ += cost_of(step.inbound);
  return found;
}

}  // namespace tendon::v0::detail
