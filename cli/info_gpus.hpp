// SPDX-License-Identifier: Apache-2.0
// The GPUs that `tendon info` shows, and the reason where there are none.
#pragma once

#include <tendon/tensor/value.hpp>

namespace tendon::cli {

/// Returns `library`, then `error`, or `driver` and `devices`. A child asks the driver, so that a
/// driver that hangs or crashes costs ten seconds and a line.
[[nodiscard]] Value::Map find_gpus();
void print_gpus(const Value::Map& facts);

}  // namespace tendon::cli
