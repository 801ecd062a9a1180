// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

namespace tendon::v0::detail {

/// The parts of a Context that upper layers make, one of each type. A part lives while it is
/// shared; the next one is made after its destructor has finished.
///
/// Owns:    none of them.
/// Threads: thread-safe; a part is made and opened under the lock, so it asks for no other part.
/// Errors:  those of open().
/// Blocks:  while a part is opened, and while the previous one ends.
/// Cost:    a lock and a look-up.
class ContextParts {
 public:
  /// Returns the part of this type. Without one it calls `make`, which returns a
  /// std::shared_ptr<T>, and then open() of the part. The destructor of T must call end<T>().
  template <class T, class Make>
  [[nodiscard]] Result<std::shared_ptr<T>> of(Make make) TENDON_EXCLUDES(mutex_) {
    std::shared_ptr<T> part;  // declared before the lock: its end takes the lock
    const Lock lock(mutex_);
    for (auto found = known_.find(&kKey<T>); found != known_.end(); found = known_.find(&kKey<T>)) {
      part = std::static_pointer_cast<T>(found->second.lock());
      if (part != nullptr) return part;
      ended_.wait(mutex_);  // it ends on another thread
    }
    part = make();
    known_[&kKey<T>] = part;
    TENDON_CHECK(part->open());
    return part;
  }
  /// Called when the part of this type has ended.
  template <class T>
  void end() TENDON_EXCLUDES(mutex_) {
    {
      const Lock lock(mutex_);
      known_.erase(&kKey<T>);
    }
    ended_.notify_all();
  }

 private:
  template <class T>
  static constexpr char kKey = 0;  // only its address is used

  Mutex mutex_;
  CondVar ended_;
  std::map<const void*, std::weak_ptr<void>> known_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
