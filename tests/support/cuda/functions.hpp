// SPDX-License-Identifier: Apache-2.0
// The functions of the driver as the double implements them. They are called after check_call().
#pragma once

#include "cuda/driver_types.hpp"

namespace tendon::cuda_double {

using namespace v0::detail::cuda;

#define TENDON_CUDA_FUNCTION(field, exported, since, parameters) Status field parameters;
#include "cuda/driver_functions.def"
#undef TENDON_CUDA_FUNCTION

}  // namespace tendon::cuda_double
