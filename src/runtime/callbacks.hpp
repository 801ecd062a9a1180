// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <tendon/core/mutex.hpp>
#include <vector>

namespace tendon::v0::detail {

class ContextCore;

/// Functions that one thread adds and another calls, under no lock, in order, once.
///
/// Owns:    the functions until they were called.
/// Threads: thread-safe.
/// Errors:  what a function throws is logged, as of the Context that runs it.
/// Blocks:  run() as long as the functions do.
/// Cost:    any(): one load.
class Callbacks {
 public:
  void add(std::function<void()> callback);
  [[nodiscard]] bool any() const noexcept { return count() != 0; }
  [[nodiscard]] std::size_t count() const noexcept { return count_.load(); }
  /// Calls those that there are. Returns whether there was one.
  bool run(const ContextCore& context);

 private:
  Mutex mutex_;
  std::vector<std::function<void()>> ready_ TENDON_GUARDED_BY(mutex_);
  std::atomic<std::size_t> count_{0};  // changed under the lock
};

}  // namespace tendon::v0::detail
