// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <tendon/tensor/value.hpp>

namespace tendon::v0::detail {

/// The limits of non-tensor data hold for files as for messages, so that what was read can be sent
/// and what is saved can be read.
[[nodiscard]] inline Result<void> check_values_limits(const TensorDict& dict) {
  if (dict.values()) TENDON_CHECK(to_json(*dict.values()));
  return {};
}

}  // namespace tendon::v0::detail
