// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

#include "secure/tls_limits.hpp"

namespace tendon::v0::detail::secure {

/// When the session of a link is renewed, and how often a peer may ask for it. Tests use other
/// values.
struct RenewalLimits {
  std::chrono::nanoseconds age = kRenewalAge;
  std::uint64_t bytes = kRenewalBytes;
  std::chrono::nanoseconds deadline = kRenewalDeadline;
  std::uint32_t starts = kMaxRenewals;
  std::chrono::nanoseconds starts_within = kRenewalsWithin;
};

}  // namespace tendon::v0::detail::secure
