// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// Keeps fork() apart from the name look-ups of this process.
///
/// getaddrinfo takes locks of the C library, and a forked child inherits their state. A lock that
/// another thread held is never released there, so the child's first look-up would wait forever
/// (glibc 2.36: the lock of resolv.conf, that of the interfaces). So fork() waits until no look-up
/// is inside. It waits for kForkWaits at most, because a longer look-up waits for a server, without
/// those locks.
///
/// Owns:    a count.
/// Threads: thread-safe; one for each process.
/// Errors:  none.
/// Blocks:  the constructor of Inside while a fork is in progress; fork() up to kForkWaits.
/// Cost:    two locks for each look-up.
class LookupGate {
 public:
  /// A look-up is inside while this object lives.
  class Inside {
   public:
    Inside();
    ~Inside();
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    LookupGate& gate_;
  };
  static constexpr std::chrono::milliseconds kForkWaits{50};

 private:
  friend struct LookupForks;

  Mutex mutex_;
  CondVar left_;
  int inside_ TENDON_GUARDED_BY(mutex_) = 0;
};

}  // namespace tendon::v0::detail
