// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <tendon/core/deadline.hpp>

namespace tendon::v0::detail {

/// This host's address at the interface that reaches `host`, as host_of() gives it and as addresses
/// are written; empty when nothing is known of it. Sends nothing. Blocks as resolve().
[[nodiscard]] std::string own_host_towards(const std::string& host, Deadline deadline);

}  // namespace tendon::v0::detail
