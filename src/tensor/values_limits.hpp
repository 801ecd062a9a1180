// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <tendon/tensor/value.hpp>

namespace tendon::v0::detail {

/// Checks the limits of non-tensor data, which hold for files as for messages, so that values from
/// a file can be sent and saved values can be read.
[[nodiscard]] inline Result<void> check_values_limits(const TensorDict& dict) {
  if (dict.values()) TENDON_CHECK(to_json(*dict.values()));
  return {};
}

}  // namespace tendon::v0::detail
