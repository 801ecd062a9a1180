// SPDX-License-Identifier: Apache-2.0
#include "fabric/keys/announced_keys.hpp"

#include <utility>

namespace tendon::v0::detail {

Result<void> AnnouncingLimits::admit(std::size_t key_count, std::uint64_t key_bytes,
                                     std::size_t size_bytes) const {
  const bool is_old = keys == kMaxOldAnnouncements;
  if (key_count >= keys) {
    return Error{ErrorCode::limit_exceeded, "node.announce",
                 "a context announces at most " + std::to_string(keys) + " nodes and entities (" +
                     (is_old ? "kMaxOldAnnouncements)" : "kMaxAnnouncements)")};
  }
  if (key_bytes + size_bytes > bytes) {
    return Error{ErrorCode::limit_exceeded, "node.announce",
                 "the keys that a context announces have at most " + std::to_string(bytes) +
                     " bytes together (" +
                     (is_old ? "kMaxOldAnnouncedBytes)" : "kMaxAnnouncedBytes)")};
  }
  return {};
}

Result<bool> AnnouncedKeys::add(Pipe pipe, const std::string& key) {
  const auto found = keys_.find(key);
  if (found != keys_.end()) {
    found->second.set(pipe);
    return false;
  }
  TENDON_CHECK(limits_.admit(keys_.size(), bytes_, key.size()));
  keys_[key].set(pipe);
  bytes_ += key.size();
  return true;
}

bool AnnouncedKeys::remove(Pipe pipe, const std::string& key) {
  const auto found = keys_.find(key);
  return found != keys_.end() && remove(pipe, found).second;
}

bool AnnouncedKeys::remove_some(Pipe pipe, std::size_t most, std::string& from,
                                std::vector<std::string>& gone) {
  auto place = keys_.lower_bound(from);
  for (; most > 0 && place != keys_.end(); --most) {
    std::string key = place->first;
    const auto [next, went] = remove(pipe, place);
    if (went) gone.push_back(std::move(key));
    place = next;
  }
  if (place == keys_.end()) return false;
  from = place->first;
  return true;
}

std::pair<AnnouncedKeys::Keys::iterator, bool> AnnouncedKeys::remove(Pipe pipe,
                                                                     Keys::iterator place) {
  const bool said = place->second.test(pipe);
  place->second.reset(pipe);
  if (!said || place->second.any()) return {std::next(place), false};
  bytes_ -= place->first.size();
  return {keys_.erase(place), true};
}

AnnouncedKeys::Pipe AnnouncedKeys::take_pipe() noexcept {
  for (Pipe pipe = 0; pipe < kMostWithLeaving; ++pipe) {
    if (pipes_.test(pipe)) continue;
    pipes_.set(pipe);
    return pipe;
  }
  return kMostWithLeaving;
}

}  // namespace tendon::v0::detail
