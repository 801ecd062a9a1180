// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda/driver_types.hpp"

namespace tendon::v0::detail::cuda {

/// The functions of a driver, called as `table.stream_query(stream)`. Functions of
/// driver_functions.def that a driver may lack are null then.
struct DriverTable {
#define TENDON_CUDA_FUNCTION(field, exported, since, parameters) \
  Status(*field) parameters = nullptr;
#include "cuda/driver_functions.def"
#undef TENDON_CUDA_FUNCTION
};

/// CUDA 12.0, in the form of cuDriverGetVersion.
inline constexpr int kOldestDriver = 12000;

}  // namespace tendon::v0::detail::cuda
