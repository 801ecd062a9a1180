// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tendon::v0::detail {

/// How tensors are copied: between host memory and a GPU (device), or within one.
enum class DeviceCopyKind : std::uint8_t { h2d, d2h, d2d };

}  // namespace tendon::v0::detail
