// SPDX-License-Identifier: Apache-2.0
// Objects that a process has once. Neither kind is a function's static, because a child that is
// forked while another thread makes one would wait for that thread for ever. Neither is ever
// destroyed: threads and destructors of statics use them until the very end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/fork_guard.hpp"

namespace tendon::v0::detail {

/// One object, made at its first use. A forked child keeps its parent's, as it is. For objects that
/// never change, or have no lock.
///
/// Owns:    the object, for good.
/// Threads: thread-safe. Several may make it at once: the first one counts, the others are dropped.
/// Errors:  those of the function that makes it, which are exceptions.
/// Blocks:  never.
/// Cost:    a load. Constant initialisation: declare it `constinit`.
template <class T>
class MadeOnce {
 public:
  /// `make` returns a std::unique_ptr<T>.
  template <class F>
  [[nodiscard]] T& get(F make) {
    T* known = made_.load(std::memory_order_acquire);
    if (known != nullptr) return *known;
    std::unique_ptr<T> mine = make();
    if (made_.compare_exchange_strong(known, mine.get(), std::memory_order_acq_rel))
      return *mine.release();
    return *known;
  }

 private:
  std::atomic<T*> made_{nullptr};
};

/// One object in each process: a forked child makes its own at its first use, and leaves that of
/// its parent alone. For objects with a lock, which a thread of the parent may hold, and for those
/// that name objects of the parent.
///
/// Owns:    the object, for good.
/// Threads: thread-safe, as MadeOnce.
/// Errors:  those of the constructor, which are exceptions.
/// Blocks:  never.
/// Cost:    two loads. Constant initialisation: declare it `constinit`.
template <class T>
class PerProcess {
 public:
  [[nodiscard]] T& get() {
    Made* known = made_.load(std::memory_order_acquire);
    while (known == nullptr || known->process != process_number()) {
      auto mine = std::make_unique<Made>();
      if (made_.compare_exchange_strong(known, mine.get(), std::memory_order_acq_rel))
        known = mine.release();
    }
    return known->object;
  }

 private:
  struct Made {
    const std::uint32_t process = process_number();
    T object;
  };
  std::atomic<Made*> made_{nullptr};
};

}  // namespace tendon::v0::detail
