// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/device_body.hpp"

namespace tendon::v0::detail {

/// Counts the messages of a pipe that the program reads in memory of the peer's GPU. Each keeps a
/// slot of its sender for as long as the program likes.
///
/// Owns:    the count, which lives as long as its views.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    an allocation a view.
class DirectViews {
 public:
  static constexpr std::uint32_t kMost = 8;

  [[nodiscard]] bool has_room() const noexcept { return count_->load() < kMost; }
  /// Returns a share that counts until it is dropped.
  [[nodiscard]] std::shared_ptr<const DeviceBody> counted(std::shared_ptr<const DeviceBody> body) {
    count_->fetch_add(1);
    const DeviceBody* const address = body.get();
    return {address, [count = count_, body = std::move(body)](const DeviceBody*) mutable {
              body.reset();
              count->fetch_sub(1);
            }};
  }

 private:
  const std::shared_ptr<std::atomic<std::uint32_t>> count_ =
      std::make_shared<std::atomic<std::uint32_t>>(0);
};

}  // namespace tendon::v0::detail
