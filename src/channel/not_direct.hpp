// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/error.hpp>
#include <tendon/memory/device.hpp>

namespace tendon::v0::detail {

/// The refusal of DevicePath::direct_only. `target`: a peer or a key. `why`: the reason for
/// staging.
[[nodiscard]] inline Error not_direct(std::string_view where, Device device,
                                      std::string_view target, std::string_view why) {
  return Error{ErrorCode::not_direct, where,
               "tensors on " + to_string(device) + " would travel to " + std::string(target) +
                   " through host memory, because " + std::string(why) +
                   ", and ContextOptions::device_path is direct_only; nothing was sent: send a "
                   "copy in host memory, or choose DevicePath::automatic"};
}

}  // namespace tendon::v0::detail
