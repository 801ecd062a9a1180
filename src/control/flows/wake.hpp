// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <memory>
#include <tendon/core/error.hpp>
#include <tendon/core/result.hpp>

#include "runtime/user_event.hpp"

namespace tendon::v0::detail {

/// Makes the event that ends the wait of a thread that polls sockets of ZeroMQ.
[[nodiscard]] inline Result<std::unique_ptr<UserEvent>> open_wake() {
  auto wake = std::make_unique<UserEvent>();
  if (!wake->open()) return system_error("control.wake", "eventfd", errno);
  return wake;
}

}  // namespace tendon::v0::detail
