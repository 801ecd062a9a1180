// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/feed_queue.hpp"

#include "fabric/topics/feed.hpp"

namespace tendon::v0::detail {

void FeedQueue::push(Feed& feed) {
  const Lock lock(mutex_);
  if (std::exchange(feed.place_.waits, true)) return;
  waiting_.push_back(feed.weak_from_this());
  some_wait_.store(true);
}

void FeedQueue::note_changed(Feed& feed) {
  bool is_first = false;
  {
    const Lock lock(mutex_);
    if (std::exchange(feed.place_.has_changed, true)) return;
    is_first = changed_.empty();
    changed_.push_back(feed.weak_from_this());
  }
  if (is_first) on_change_();
}

void FeedQueue::note_open(Feed& feed) {
  const Lock lock(mutex_);
  if (!std::exchange(feed.place_.is_open, true)) ++open_count_;
}

void FeedQueue::note_closed(Feed& feed) {
  const Lock lock(mutex_);
  if (std::exchange(feed.place_.is_open, false)) --open_count_;
}

std::size_t FeedQueue::open_count() {
  const Lock lock(mutex_);
  return open_count_;
}

// A receiver that misses a feed that was just pushed looks again: the push wakes it.
std::shared_ptr<Feed> FeedQueue::next() {
  if (!some_wait()) return nullptr;
  const Lock lock(mutex_);
  std::shared_ptr<Feed> feed;
  while (feed == nullptr && !waiting_.empty()) {
    feed = waiting_.front().lock();
    waiting_.pop_front();
  }
  if (feed != nullptr) feed->place_.waits = false;
  some_wait_.store(!waiting_.empty());
  return feed;
}

// It counts as a waiting one, so that it is only in one place.
void FeedQueue::set_aside(const std::shared_ptr<Feed>& feed) {
  const Lock lock(mutex_);
  if (std::exchange(feed->place_.waits, true)) return;
  aside_.push_back(feed);
}

void FeedQueue::bring_back() {
  const Lock lock(mutex_);
  waiting_.insert(waiting_.end(), aside_.begin(), aside_.end());
  some_wait_.store(!waiting_.empty());
  aside_.clear();
}

std::size_t FeedQueue::count() {
  const Lock lock(mutex_);
  return waiting_.size();
}

std::vector<std::shared_ptr<Feed>> FeedQueue::take_changed() {
  std::vector<std::shared_ptr<Feed>> changed;
  const Lock lock(mutex_);
  changed.reserve(changed_.size());
  for (const auto& weak : changed_) {
    auto feed = weak.lock();
    if (feed == nullptr) continue;
    feed->place_.has_changed = false;
    changed.push_back(std::move(feed));
  }
  changed_.clear();
  return changed;
}

}  // namespace tendon::v0::detail
