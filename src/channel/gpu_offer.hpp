// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tendon/core/result.hpp>

#include "cuda/uuid.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

/// The number by which the peer of this link knows a GPU of this side. A new GPU is offered first.
/// Errors: unsupported_device for a peer that takes no tensors on GPUs, and for one GPU more than a
/// link names.
[[nodiscard]] Result<std::uint32_t> offer_gpu(Link& link, const cuda::Uuid& gpu,
                                              std::string_view where);

}  // namespace tendon::v0::detail
