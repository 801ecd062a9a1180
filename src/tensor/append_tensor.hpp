// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tendon/core/result.hpp>
#include <tendon/tensor/atomic_file.hpp>
#include <tendon/tensor/tensor.hpp>

namespace tendon::v0::detail {

/// Appends the elements of a CPU tensor in row-major order, whatever its strides.
[[nodiscard]] Result<void> append_tensor(AtomicFile& file, const Tensor& tensor);

}  // namespace tendon::v0::detail
