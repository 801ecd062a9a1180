// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail::cuda {

/// The library of the driver that the environment chooses: `libcuda.so.1`, or that of
/// TENDON_CUDA_LIBRARY; not_supported with TENDON_CUDA=off (docs/environment.md).
[[nodiscard]] TENDON_API Result<std::string> chosen_library();

}  // namespace tendon::v0::detail::cuda
