// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "cuda/driver_types.hpp"

namespace tendon::v0::detail::cuda {

/// Memory of the host or of a GPU, as the driver names it.
[[nodiscard]] inline DeviceAddress address_of(const std::byte* data) noexcept {
  return reinterpret_cast<DeviceAddress>(data);
}

}  // namespace tendon::v0::detail::cuda
