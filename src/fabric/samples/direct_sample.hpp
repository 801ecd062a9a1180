// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>

#include "channel/direct_batch.hpp"
#include "channel/direct_views.hpp"

namespace tendon::v0::detail {

/// A sample whose tensors lie on a GPU in memory of its publisher, not delivered yet.
struct DirectSample {
  DirectMessage message;
  std::shared_ptr<DirectViews> views;     ///< of the publisher's samples
  std::chrono::milliseconds patience{0};  ///< of the next try to copy it to host memory, at least
};

}  // namespace tendon::v0::detail
