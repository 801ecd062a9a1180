// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/key_expression.hpp>
#include <utility>
#include <vector>

#include "fabric/keys/key_set.hpp"

namespace tendon::v0::detail {

/// Whether everything has been reported that was there when it was followed.
enum class Picture : std::uint8_t { incomplete, complete };

/// Announces a Context's nodes and entities to others, and reports theirs: as keys, in the form of
/// announcement.hpp. An announcement is a hint that anybody may have written.
///
/// Threads: thread-safe. Shared by the nodes of a Context; not destroyed under a link's receive
///          lock.
/// Errors:  limit_exceeded; those of the carrier of the keys.
/// Blocks:  never.
/// Cost:    for each change: a look into a tree for each reader; never a look over all that is
///          known.
class Discovery {
 public:
  virtual ~Discovery() = default;

  /// Announces a key. It must be withdrawn as often as it was announced.
  [[nodiscard]] virtual Result<void> announce(const KeyExpression& key) = 0;
  virtual void withdraw(const KeyExpression& key) = 0;

  /// Reports announcements under `pattern` to readers, from now until the same is unfollowed.
  [[nodiscard]] virtual Result<void> follow(const KeyExpression& pattern) = 0;
  virtual void unfollow(const KeyExpression& pattern) = 0;
  /// Makes a reader of everything that is followed, and of this Context's own announcements; of
  /// more if that costs nothing. Its first changes are all known keys.
  [[nodiscard]] virtual std::shared_ptr<KeyReader> read() = 0;
  /// Unreported keys are absent only while this says `complete`.
  [[nodiscard]] virtual Picture picture() const = 0;
  /// The router that does not answer, so that nothing new is found; empty while all do.
  [[nodiscard]] virtual std::string absence() const { return {}; }

  /// Runs `on_change` later when a reader has something to take, or picture() or absence() has
  /// changed: once for many changes. Returns a number for unwatch().
  [[nodiscard]] virtual std::uint64_t watch(std::function<void()> on_change) = 0;
  virtual void unwatch(std::uint64_t number) = 0;
};

/// The watchers of changes.
///
/// Threads: thread-safe. Callbacks run where `schedule` runs them, under no lock.
/// Cost:    for a change that is reported already: an atomic.
class ChangeWatchers : public std::enable_shared_from_this<ChangeWatchers> {
 public:
  using Schedule = std::function<void(std::function<void()>)>;
  explicit ChangeWatchers(Schedule schedule) : schedule_(std::move(schedule)) {}

  [[nodiscard]] std::uint64_t add(std::function<void()> on_change) TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    watchers_.emplace(++last_, std::move(on_change));
    return last_;
  }
  void remove(std::uint64_t number) TENDON_EXCLUDES(mutex_) {
    const Lock lock(mutex_);
    watchers_.erase(number);
  }
  /// Reports a change to all later, once for all changes until then.
  void changed() {
    if (told_.exchange(true)) return;
    schedule_([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->call();
    });
  }

 private:
  void call() TENDON_EXCLUDES(mutex_) {
    told_ = false;  // before they look: later changes are reported again
    std::vector<std::function<void()>> watchers;
    {
      const Lock lock(mutex_);
      for (const auto& [number, on_change] : watchers_) watchers.push_back(on_change);
    }
    for (const auto& on_change : watchers) on_change();
  }

  const Schedule schedule_;
  std::atomic<bool> told_{false};
  Mutex mutex_;
  std::map<std::uint64_t, std::function<void()>> watchers_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t last_ TENDON_GUARDED_BY(mutex_) = 0;
};

}  // namespace tendon::v0::detail
