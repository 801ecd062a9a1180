// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Holds a flag for the length of a call; a second caller is told `busy`.
class Busy {
 public:
  explicit Busy(std::atomic<bool>& flag)
      : flag_(flag),
        mine_(!flag.load(std::memory_order_relaxed) &&
              !flag.exchange(true, std::memory_order_acquire)) {}
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;
  ~Busy() {
    if (mine_) flag_.store(false, std::memory_order_release);
  }
  [[nodiscard]] bool mine() const noexcept { return mine_; }

 private:
  std::atomic<bool>& flag_;
  const bool mine_;
};

}  // namespace tendon::v0::detail
