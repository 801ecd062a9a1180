// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/placed_layout.hpp"
#include "cuda/driver_types.hpp"
#include "cuda/stream_work.hpp"

namespace tendon::v0::detail {

/// Enqueues copies that pack the leaves of a batch on the GPU of `work` into its memory at
/// `address`, by placed_layout(). Packed leaves need one copy; others one for each large leaf and
/// one kernel for all small ones. If the kernel is not there before the deadline, each leaf is
/// copied. Errors: those of the driver.
[[nodiscard]] Result<void> pack_on_gpu(const TensorDict& batch, const PlacedLayout& layout,
                                       cuda::DeviceAddress address, cuda::StreamWork& work,
                                       Deadline deadline);

}  // namespace tendon::v0::detail
