// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/placement.hpp"
#include "cuda/gpu.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The GPU of a batch that is to be sent, and its placement for the peer.
struct GpuSource {
  std::shared_ptr<cuda::Gpu> gpu;
  std::uint32_t number = 0;  ///< in the offers of this side
  std::shared_ptr<const Placement> placement;
};

/// Offers the GPU to the peer, at its first batch. Precondition: leaves lie on one. Errors: those
/// of gpu_of() and of Gpus::use(); unsupported_device for a peer that takes none. Blocks at the
/// first use of the GPU, until the deadline.
[[nodiscard]] Result<GpuSource> gpu_source(const TensorDict& batch, Link& link, Deadline deadline);

}  // namespace tendon::v0::detail
