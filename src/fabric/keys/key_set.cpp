// SPDX-License-Identifier: Apache-2.0
#include "fabric/keys/key_set.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tendon::v0::detail {

// The changes that one reader has not seen

std::vector<ChangedKey> KeyReader::take(std::size_t most) {
  std::vector<ChangedKey> taken;
  const Lock lock(mutex_);
  taken.reserve(std::min(most, waiting_.size()));
  while (taken.size() < most && !waiting_.empty()) {
    places_.erase(waiting_.front().key);
    taken.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return taken;
}

std::vector<AnnouncingTrouble> KeyReader::take_troubles() {
  const Lock lock(mutex_);
  return std::exchange(troubles_, {});
}

void KeyReader::note(std::string_view key, KeyChange change) {
  const Lock lock(mutex_);
  if (const auto found = places_.find(key); found != places_.end()) {
    // The set alternates additions and removals: this one cancels the other.
    const auto place = found->second;
    places_.erase(found);
    waiting_.erase(place);
    return;
  }
  waiting_.push_back({std::string(key), change});
  places_.emplace(waiting_.back().key, std::prev(waiting_.end()));
}

void KeyReader::note(const AnnouncingTrouble& trouble) {
  const Lock lock(mutex_);
  if (troubles_.size() < kMostTroubles) troubles_.push_back(trouble);
}

// The keys

bool KeySet::add(std::string_view key) {
  const Lock lock(mutex_);
  if (const auto found = keys_.find(key); found != keys_.end()) {
    ++found->second;
    return false;
  }
  keys_.emplace(std::string(key), 1U);
  note(key, KeyChange::came);
  return true;
}

bool KeySet::remove(std::string_view key) {
  const Lock lock(mutex_);
  const auto found = keys_.find(key);
  if (found == keys_.end() || --found->second > 0) return false;
  note(key, KeyChange::went);
  keys_.erase(found);
  return true;
}

void KeySet::note(std::string_view key, KeyChange change) {
  for (const auto& weak : readers_)
    if (const auto reader = weak.lock()) reader->note(key, change);
}

void KeySet::tell(const AnnouncingTrouble& trouble) {
  const Lock lock(mutex_);
  for (const auto& weak : readers_)
    if (const auto reader = weak.lock()) reader->note(trouble);
}

std::shared_ptr<KeyReader> KeySet::read() {
  auto reader = std::make_shared<KeyReader>();
  const Lock lock(mutex_);
  for (const auto& [key, count] : keys_) reader->note(key, KeyChange::came);
  std::erase_if(readers_, [](const auto& weak) { return weak.expired(); });
  readers_.push_back(reader);
  return reader;
}

}  // namespace tendon::v0::detail
