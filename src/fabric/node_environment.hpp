// SPDX-License-Identifier: Apache-2.0
// The environment's word for nodes that say nothing themselves.
#pragma once

#include <string>
#include <vector>

namespace tendon::v0::detail {

/// `asked`; where that is empty, the environment's TENDON_DOMAIN, and else "default".
[[nodiscard]] std::string domain_or_default(std::string asked);
/// Those of TENDON_ROUTER="HOST:PORT,HOST:PORT".
[[nodiscard]] std::vector<std::string> routers_of_environment();

}  // namespace tendon::v0::detail
