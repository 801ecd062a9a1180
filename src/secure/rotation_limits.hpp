// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "secure/record_layer.hpp"
#include "secure/renewal_limits.hpp"
#include "secure/tls_limits.hpp"

namespace tendon::v0::detail::secure {

/// The limits after which every protection of a link is replaced.
struct RotationLimits {
  RecordLimits records{};
  RenewalLimits renewal{};
  std::chrono::nanoseconds looks_every = kCredentialLook;
};

}  // namespace tendon::v0::detail::secure
