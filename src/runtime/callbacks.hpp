// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <tendon/core/mutex.hpp>
#include <vector>

namespace tendon::v0::detail {

class ContextCore;

/// Functions that one thread adds and another calls once, in order, under no lock.
///
/// Owns:    the functions until they have been called.
/// Threads: thread-safe.
/// Errors:  an exception of a function is logged for the Context that runs it.
/// Blocks:  run() as long as the functions do.
/// Cost:    any(): one load.
class Callbacks {
 public:
  void add(std::function<void()> callback);
  [[nodiscard]] bool any() const noexcept { return count() != 0; }
  [[nodiscard]] std::size_t count() const noexcept { return count_.load(); }
  /// Calls the functions added so far. Returns whether there was one.
  bool run(const ContextCore& context);

 private:
  Mutex mutex_;
  std::vector<std::function<void()>> ready_ TENDON_GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};  // changed under the lock
};

}  // namespace tendon::v0::detail
