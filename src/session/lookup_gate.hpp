// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// Keeps fork() apart from the look-ups of names of this process.
///
/// The C library takes locks of its own inside getaddrinfo, and a forked child finds them as they
/// were: one that another thread held is never free there, and the child's first look-up waits for
/// ever (glibc 2.36: the lock of resolv.conf, that of the interfaces). So fork() waits until no
/// look-up is inside. It waits for kForkWaits at most: a look-up that takes longer waits for a
/// server, which it does without those locks.
///
/// Owns:    a count.
/// Threads: thread-safe; one for each process.
/// Errors:  none.
/// Blocks:  the constructor of Inside while a fork is on its way; fork() up to kForkWaits.
/// Cost:    two locks for each look-up.
class LookupGate {
 public:
  /// A look-up is inside as long as this lives.
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
