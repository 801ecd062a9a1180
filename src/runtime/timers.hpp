// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// An object with a deadline, such as a handshake that must end.
class Timed {
 public:
  virtual ~Timed() = default;
  /// Called when its time has arrived.
  virtual void on_time() = 0;
};

/// Deadlines, each with an object that is called then, once.
///
/// Owns:    no Timed: one that no longer exists is skipped.
/// Threads: thread-safe; on_time() is called without its lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    next() and run() look at each entry; there are as many as handshakes under way.
class Timers {
 public:
  /// Returns a number for remove(), never 0.
  [[nodiscard]] std::uint64_t add(Deadline when, std::weak_ptr<Timed> timed);
  void remove(std::uint64_t id);
  void clear();
  /// The time at which run() has something to do.
  [[nodiscard]] Deadline next() const;
  /// Removes each due entry, then calls it.
  void run();

 private:
  struct Entry {
    Deadline when;
    std::weak_ptr<Timed> timed;
  };

  mutable Mutex mutex_;
  std::map<std::uint64_t, Entry> entries_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t next_id_ TENDON_GUARDED_BY(mutex_) = 1;
};

}  // namespace tendon::v0::detail
