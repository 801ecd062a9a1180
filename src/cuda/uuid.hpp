// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cuda/driver_types.hpp"

namespace tendon::v0::detail::cuda {

[[nodiscard]] inline bool operator==(const Uuid& a, const Uuid& b) noexcept {
  return a.bytes == b.bytes;
}
/// "GPU-" and 32 digits, as nvidia-smi and CUDA_VISIBLE_DEVICES write a GPU.
[[nodiscard]] std::string uuid_text(const Uuid& uuid);

}  // namespace tendon::v0::detail::cuda
