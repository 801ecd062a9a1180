// SPDX-License-Identifier: Apache-2.0
#include "group/membership/strangers.hpp"

#include <algorithm>
#include <utility>

namespace tendon::v0::detail {

Strangers::List::iterator Strangers::find(const MemberChannel& channel) {
  return std::ranges::find_if(strangers_,
                              [&](const Stranger& each) { return each.channel.get() == &channel; });
}

Strangers::List::iterator Strangers::who_gives_way(const Link& link) {
  const auto is_of_link = [&](const Stranger& each) { return &each.channel->link() == &link; };
  if (std::ranges::count_if(strangers_, is_of_link) >= static_cast<std::ptrdiff_t>(kMostOfLink))
    return std::ranges::find_if(strangers_, is_of_link);
  if (strangers_.size() < kMost) return strangers_.end();
  const auto silent = std::ranges::find_if(
      strangers_, [](const Stranger& each) { return !each.claim && !each.hello; });
  return silent != strangers_.end() ? silent : strangers_.begin();
}

std::shared_ptr<MemberChannel> Strangers::add(std::shared_ptr<MemberChannel> channel) {
  std::shared_ptr<MemberChannel> gone;
  if (const auto first = who_gives_way(channel->link()); first != strangers_.end()) {
    gone = std::move(first->channel);
    strangers_.erase(first);
  }
  strangers_.push_back({std::move(channel), {}, {}});
  return gone;
}

std::shared_ptr<MemberChannel> Strangers::take(const MemberChannel& channel) {
  const auto found = find(channel);
  if (found == strangers_.end()) return nullptr;
  auto taken = std::move(found->channel);
  strangers_.erase(found);
  return taken;
}

void Strangers::claim(const MemberChannel& channel, Claim claim) {
  for (Stranger& each : strangers_)
    if (each.claim && each.claim->place == claim.place) each.claim.reset();
  if (const auto found = find(channel); found != strangers_.end()) found->claim = std::move(claim);
}

std::optional<Strangers::Claimed> Strangers::take_claim(std::uint32_t place) {
  for (Stranger& each : strangers_) {
    if (!each.claim || each.claim->place != place) continue;
    return Claimed{each.channel, *std::exchange(each.claim, std::nullopt)};
  }
  return {};
}

void Strangers::keep_hello(const MemberChannel& channel, const Envelope& hello) {
  if (const auto found = find(channel); found != strangers_.end()) found->hello = hello;
}

std::vector<Strangers::Hello> Strangers::take_hellos() {
  std::vector<Hello> hellos;
  for (Stranger& each : strangers_)
    if (const auto hello = std::exchange(each.hello, std::nullopt))
      hellos.push_back({each.channel, *hello});
  return hellos;
}

std::vector<std::shared_ptr<MemberChannel>> Strangers::all() const {
  std::vector<std::shared_ptr<MemberChannel>> channels;
  for (const Stranger& each : strangers_) channels.push_back(each.channel);
  return channels;
}

}  // namespace tendon::v0::detail
