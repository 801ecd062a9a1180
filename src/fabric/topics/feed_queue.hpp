// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

namespace tendon::v0::detail {

class Feed;

/// The feeds of a subscriber that have something for its receiver, and those that have changed.
/// Nobody looks at the others: there may be ten thousand.
///
///   out -> waits    a sample is there, or its end is known: on_message() and the like
///   waits -> out    next(): the receiver puts it back behind the others if there is more, or
///                   keeps it for its next look if no other waits
///   waits -> aside  it has not its turn yet; bring_back() lets it wait again
///
/// Owns:    no feed.
/// Threads: thread-safe; its lock is taken after a link's receive lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock.
class FeedQueue {
 public:
  /// The queue's notes at each feed.
  struct Place {
    bool waits = false;
    bool has_changed = false;
    bool is_open = false;  ///< and counted as such
  };

  /// `on_change` is called under a link's receive lock, once for all changes until take_changed().
  explicit FeedQueue(std::function<void()> on_change) : on_change_(std::move(on_change)) {}

  /// Adds a feed that has something to take, or is over.
  void push(Feed& feed) TENDON_EXCLUDES(mutex_);
  /// Notes that more is known of its end.
  void note_changed(Feed& feed) TENDON_EXCLUDES(mutex_);

  /// Notes that its subscriber knows it, and samples may arrive.
  void note_open(Feed& feed) TENDON_EXCLUDES(mutex_);
  /// Notes that none will arrive.
  void note_closed(Feed& feed) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::size_t open_count() TENDON_EXCLUDES(mutex_);

  /// True if one waits. No lock.
  [[nodiscard]] bool some_wait() const noexcept { return some_wait_.load(); }
  /// The one that waits longest; null: none does, which costs no lock.
  [[nodiscard]] std::shared_ptr<Feed> next() TENDON_EXCLUDES(mutex_);
  void set_aside(const std::shared_ptr<Feed>& feed) TENDON_EXCLUDES(mutex_);
  void bring_back() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::size_t count() TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<std::shared_ptr<Feed>> take_changed() TENDON_EXCLUDES(mutex_);

 private:
  using Feeds = std::deque<std::weak_ptr<Feed>>;

  const std::function<void()> on_change_;
  Mutex mutex_;
  Feeds waiting_ TENDON_GUARDED_BY(mutex_);
  std::atomic<bool> some_wait_{false};  // changed under the lock
  Feeds aside_ TENDON_GUARDED_BY(mutex_);
  Feeds changed_ TENDON_GUARDED_BY(mutex_);
  std::size_t open_count_ TENDON_GUARDED_BY(mutex_) = 0;
};

}  // namespace tendon::v0::detail
