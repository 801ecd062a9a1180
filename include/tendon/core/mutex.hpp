// SPDX-License-Identifier: Apache-2.0
// Locks that the compiler checks. Clang's -Wthread-safety, an error in `make lint`, reports members
// that are used without their lock, and calls without the locks that they require. It also reports
// a lock that is taken twice or never released. For g++ the attributes are nothing.
// Their meaning: https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#include <condition_variable>
#include <mutex>
#include <tendon/core/deadline.hpp>

#if defined(__clang__)
#define TENDON_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define TENDON_THREAD_SAFETY(attribute)
#endif

/// A member that is read and written under this lock alone.
#define TENDON_GUARDED_BY(mutex) TENDON_THREAD_SAFETY(guarded_by(mutex))
/// A function that is called with these locks held. A lambda needs it too, because clang analyses
/// each function by itself: `[&]() TENDON_REQUIRES(mutex_) {}`.
#define TENDON_REQUIRES(...) TENDON_THREAD_SAFETY(requires_capability(__VA_ARGS__))
/// A function that takes these locks, so its caller must not hold them.
#define TENDON_EXCLUDES(...) TENDON_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
/// The order of two locks of one class.
#define TENDON_ACQUIRED_AFTER(...) TENDON_THREAD_SAFETY(acquired_after(__VA_ARGS__))
/// A function that returns a lock of its class.
#define TENDON_RETURNS_LOCK(mutex) TENDON_THREAD_SAFETY(lock_returned(mutex))
/// A function that returns with the lock held, and one that releases it.
#define TENDON_ACQUIRES(...) TENDON_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define TENDON_RELEASES(...) TENDON_THREAD_SAFETY(release_capability(__VA_ARGS__))
/// A class that is a lock, and one that holds a lock for as long as it lives.
#define TENDON_LOCKABLE TENDON_THREAD_SAFETY(capability("mutex"))
#define TENDON_SCOPED_LOCKABLE TENDON_THREAD_SAFETY(scoped_lockable)
/// A function that clang does not analyse. A comment at each use says why.
#define TENDON_UNCHECKED_LOCKS TENDON_THREAD_SAFETY(no_thread_safety_analysis)

namespace tendon {
inline namespace v0 {
namespace detail {

/// std::mutex with attributes.
///
/// Owns:    a mutex.
/// Threads: thread-safe; the thread that took it releases it.
/// Errors:  none.
/// Blocks:  lock(): until it is free.
/// Cost:    that of std::mutex.
class TENDON_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() TENDON_ACQUIRES() { mutex_.lock(); }
  void unlock() TENDON_RELEASES() { mutex_.unlock(); }
  [[nodiscard]] bool try_lock() TENDON_THREAD_SAFETY(try_acquire_capability(true)) {
    return mutex_.try_lock();
  }
  /// States that this thread holds the lock, where clang cannot know: for instance in a function
  /// that is called through an interface which does not name it.
  void assert_held() const noexcept TENDON_THREAD_SAFETY(assert_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

/// Makes a Lock from a try_lock() that succeeded.
struct AdoptLock {};
inline constexpr AdoptLock kAdoptLock;

/// Holds a Mutex for as long as it lives.
class TENDON_SCOPED_LOCKABLE Lock {
 public:
  explicit Lock(Mutex& mutex) TENDON_ACQUIRES(mutex) : mutex_(mutex) { mutex.lock(); }
  Lock(Mutex& mutex, AdoptLock) TENDON_REQUIRES(mutex) : mutex_(mutex) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() TENDON_RELEASES() {
    if (holds_) mutex_.unlock();
  }
  /// Releases it before the end of the block; lock() takes it again.
  void unlock() TENDON_RELEASES() {
    mutex_.unlock();
    holds_ = false;
  }
  void lock() TENDON_ACQUIRES() {
    mutex_.lock();
    holds_ = true;
  }

 private:
  Mutex& mutex_;
  bool holds_ = true;
};

/// std::condition_variable for a Mutex.
class CondVar {
 public:
  void notify_one() noexcept { condition_.notify_one(); }
  void notify_all() noexcept { condition_.notify_all(); }
  /// Returns after a notify, and now and then without one, so the caller tests its condition in a
  /// loop. There is no form with a predicate, because clang cannot check one.
  void wait(Mutex& mutex) TENDON_REQUIRES(mutex) {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  /// The same, but returns false when the deadline has passed.
  bool wait_until(Mutex& mutex, Deadline deadline) TENDON_REQUIRES(mutex) {
    if (deadline.is_never()) {
      wait(mutex);
      return true;
    }
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const auto how = condition_.wait_until(lock, deadline.time_point());
    lock.release();
    return how == std::cv_status::no_timeout;
  }

 private:
  std::condition_variable condition_;
};

}  // namespace detail
}  // namespace v0
}  // namespace tendon
