// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "support/cuda/world.hpp"

namespace tendon::cuda_double {

/// Counts each call and checks it first. It is answered at once after a fork, before cuInit, in a
/// lost context, during another thread's capture, or when a test wants it to fail.
Status check_call(Function function);

std::string_view exported_name(Function function);

}  // namespace tendon::cuda_double
