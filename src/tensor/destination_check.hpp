// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::v0::detail {

/// Refuses leaves that cannot receive: read_only, unsupported_device, overlapping (a leaf with two
/// elements that share memory, or two leaves that do), naming the leaf.
[[nodiscard]] Result<void> check_destination(const TensorDict& destination);
/// The same for leaves anywhere, but computed at each call.
[[nodiscard]] Result<void> check_writable(const TensorDict& destination);

}  // namespace tendon::v0::detail
