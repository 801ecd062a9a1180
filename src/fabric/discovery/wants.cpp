// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/wants.hpp"

#include <utility>

namespace tendon::v0::detail {

// Subscribers here

void OwnSubscribers::add(std::uint32_t number, const KeyExpression& keys,
                         std::weak_ptr<Follower> one) {
  all_[number] = std::move(one);
  if (keys.is_key())
    of_keys_[keys.text()].insert(number);
  else
    wild_.emplace(number, keys);
}

bool OwnSubscribers::remove(std::uint32_t number, const KeyExpression& keys) {
  if (all_.erase(number) == 0) return false;
  wild_.erase(number);
  if (const auto found = of_keys_.find(keys.text()); found != of_keys_.end()) {
    found->second.erase(number);
    if (found->second.empty()) of_keys_.erase(found);
  }
  return true;
}

std::shared_ptr<Follower> OwnSubscribers::find(std::uint32_t number) const {
  const auto found = all_.find(number);
  return found == all_.end() ? nullptr : found->second.lock();
}

OwnSubscribers::Subscribers OwnSubscribers::takers(const KeyExpression& topic) const {
  Subscribers takers;
  const auto add = [&](std::uint32_t number) {
    if (auto taker = find(number)) takers.push_back(std::move(taker));
  };
  if (const auto found = of_keys_.find(topic.text()); found != of_keys_.end())
    for (const std::uint32_t number : found->second) add(number);
  for (const auto& [number, keys] : wild_)
    if (keys.intersects(topic)) add(number);
  return takers;
}

OwnSubscribers::Subscribers OwnSubscribers::all() const {
  Subscribers alive;
  for (const auto& [number, weak] : all_)
    if (auto one = weak.lock()) alive.push_back(std::move(one));
  return alive;
}

void OwnSubscribers::clear() { *this = {}; }

// Publishers elsewhere

void Wants::add(const PublisherId& publisher, std::uint32_t subscriber) {
  const auto [place, is_new] = wants_.try_emplace(publisher);
  place->second.insert(subscriber);
  if (is_new) untold_.insert(publisher);
}

std::set<std::uint32_t> Wants::remove(const PublisherId& publisher) {
  untold_.erase(publisher);
  const auto found = wants_.find(publisher);
  if (found == wants_.end()) return {};
  auto subscribers = std::move(found->second);
  wants_.erase(found);
  for (const std::uint32_t subscriber : subscribers) waiting_.erase({publisher, subscriber});
  return subscribers;
}

void Wants::remove(const PublisherId& publisher, std::uint32_t subscriber) {
  const auto found = wants_.find(publisher);
  if (found == wants_.end() || found->second.erase(subscriber) == 0) return;
  waiting_.erase({publisher, subscriber});
  if (found->second.empty()) (void)remove(publisher);
}

bool Wants::has(const ContextId& context) const {
  const auto first = wants_.lower_bound(PublisherId{context, 0});
  return first != wants_.end() && first->first.context == context;
}

std::vector<Wants::Want> Wants::take_waiting(const ContextId& context) {
  std::vector<Want> taken;
  auto place = waiting_.lower_bound({PublisherId{context, 0}, 0});
  while (place != waiting_.end() && place->first.context == context) {
    taken.push_back(*place);
    place = waiting_.erase(place);
  }
  const auto any = wants_.lower_bound(PublisherId{context, 0});
  if (taken.empty() && any != wants_.end() && any->first.context == context)
    taken.emplace_back(any->first, *any->second.begin());
  return taken;
}

std::vector<PublisherId> Wants::tell_all_of(const ContextId& context) {
  std::vector<PublisherId> told;
  auto place = untold_.lower_bound(PublisherId{context, 0});
  while (place != untold_.end() && place->context == context) {
    told.push_back(*place);
    place = untold_.erase(place);
  }
  return told;
}

bool Wants::tell(const PublisherId& publisher) { return untold_.erase(publisher) != 0; }

void Wants::note_reached(const PublisherId& publisher) {
  if (has(publisher)) untold_.insert(publisher);
}

// Responders elsewhere

void CalledKeys::end(const KeyExpression& key) {
  if (const auto found = keys_.find(key); found != keys_.end()) --found->second;
}

bool CalledKeys::forget_unused(const KeyExpression& key) {
  const auto found = keys_.find(key);
  if (found == keys_.end() || found->second != 0) return false;
  keys_.erase(found);
  return true;
}

std::vector<KeyExpression> CalledKeys::take_unused(std::size_t most) {
  std::vector<KeyExpression> unused;
  if (keys_.size() <= most) return unused;
  std::erase_if(keys_, [&](const auto& called) {
    if (called.second != 0) return false;
    unused.push_back(called.first);
    return true;
  });
  return unused;
}

void CalledKeys::count(const ContextId& context) {
  ++contexts_[context];
  changed_.insert(context);
}

void CalledKeys::discount(const ContextId& context) {
  const auto found = contexts_.find(context);
  if (found == contexts_.end()) return;
  if (--found->second == 0) contexts_.erase(found);
  changed_.insert(context);
}

}  // namespace tendon::v0::detail
