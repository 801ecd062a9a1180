// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::v0::detail {

/// Refuses what cannot be received into: read_only, unsupported_device, overlapping (a leaf two of
/// whose elements share memory, or two leaves that do), naming the leaf.
[[nodiscard]] Result<void> check_destination(const TensorDict& destination);
/// The same wherever the leaves lie, but each time anew.
[[nodiscard]] Result<void> check_writable(const TensorDict& destination);

}  // namespace tendon::v0::detail
