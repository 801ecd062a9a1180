// SPDX-License-Identifier: Apache-2.0
#include "group/membership/mesh_listeners.hpp"

#include <utility>

#include "transport/private_body.hpp"

namespace tendon::v0::detail {
namespace {

std::uint64_t cost_of(const InboundMessage& word) {
  return private_cost_bytes(word.size_bytes + sizeof(Envelope));
}

}  // namespace

std::vector<MeshListeners::Early> MeshListeners::add(std::uint64_t group,
                                                     std::weak_ptr<MeshListener> listener) {
  listeners_[group] = std::move(listener);
  const auto found = early_.find(group);
  if (found == early_.end()) return {};
  std::vector<Early> early = std::move(found->second);
  early_.erase(found);
  early_count_ -= early.size();
  for (const Early& word : early) early_bytes_ -= cost_of(word.inbound);
  return early;
}

void MeshListeners::remove(std::uint64_t group, const MemberMask& staying) {
  listeners_.erase(group);
  if (staying.any()) removed_[group] = staying;
}

void MeshListeners::forget_place(MeshPlace place) {
  for (auto& [group, staying] : removed_) staying.reset(place.value);
  std::erase_if(removed_, [](const auto& group) { return group.second.none(); });
}

MeshListeners::Route MeshListeners::route(MeshPlace place, InboundMessage&& inbound) {
  const Envelope& envelope = inbound.envelope;
  if (const auto found = listeners_.find(envelope.group); found != listeners_.end()) {
    auto listener = found->second.lock();
    return {listener != nullptr ? Fate::heard : Fate::nobody, std::move(listener)};
  }
  if (const auto removed = removed_.find(envelope.group); removed != removed_.end()) {
    if (envelope.kind == EnvelopeKind::left && removed->second.reset(place.value).none())
      removed_.erase(removed);
    return {};
  }
  if (!is_control(envelope.kind)) return {};
  const std::uint64_t cost = cost_of(inbound);
  if (early_count_ >= kMostEarly || cost > kMostEarlyBytes - early_bytes_)
    return {Fate::flood, nullptr};
  early_bytes_ += cost;
  ++early_count_;
  early_[envelope.group].push_back({place, std::move(inbound)});
  return {Fate::kept, nullptr};
}

std::vector<std::shared_ptr<MeshListener>> MeshListeners::all() const {
  std::vector<std::shared_ptr<MeshListener>> all;
  for (const auto& [group, listener] : listeners_)
    if (auto strong = listener.lock()) all.push_back(std::move(strong));
  return all;
}

}  // namespace tendon::v0::detail
