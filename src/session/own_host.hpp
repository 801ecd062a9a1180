// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>

namespace tendon::v0::detail {

/// This host's address at the interface that reaches `host`, both in the form of addresses:
/// "10.0.0.2", "[::1]". Empty when it is unknown. Sends nothing. Blocks as resolve().
[[nodiscard]] TENDON_API std::string own_host_towards(const std::string& host, Deadline deadline);

}  // namespace tendon::v0::detail
