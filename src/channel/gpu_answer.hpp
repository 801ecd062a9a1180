// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <tendon/core/result.hpp>
#include <utility>

namespace tendon::v0::detail {

/// Tells that a GPU has finished some work, or why it never will.
///
/// Owns:    the error.
/// Threads: finish() in one thread, once; the rest in any.
/// Errors:  those of the driver.
/// Blocks:  never.
/// Cost:    a load.
class GpuAnswer {
 public:
  void finish(Result<void> result) {
    result_ = std::move(result);
    is_over_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool is_over() const noexcept { return is_over_.load(std::memory_order_acquire); }
  /// Precondition: it is over.
  [[nodiscard]] const Result<void>& result() const noexcept { return result_; }

 private:
  Result<void> result_;
  std::atomic<bool> is_over_{false};
};

}  // namespace tendon::v0::detail
