// SPDX-License-Identifier: Apache-2.0
// The GPUs that a process can use here, for people who ask why one is not used.
#pragma once

#include <string>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/device.hpp>
#include <vector>

#include "cuda/driver.hpp"

namespace tendon::v0::detail::cuda {

struct GpuFacts {
  Device device;
  std::string name;
  std::string uuid;                     ///< "GPU-" and 32 digits; under MIG, of the part
  std::string compute_capability;       ///< "9.0"
  std::vector<std::string_view> lacks;  ///< missing features that Tendon needs, in words
};

struct GpuSurvey {
  std::string driver;  ///< its CUDA version: "13.0"
  std::vector<GpuFacts> gpus;
};

/// Asks the driver about each GPU. It calls cuInit, and makes no context.
/// Blocks:  for the driver, some 100 ms. Errors: those of Driver::initialise().
[[nodiscard]] TENDON_API Result<GpuSurvey> survey(Driver& driver);

}  // namespace tendon::v0::detail::cuda
