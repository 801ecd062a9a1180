// SPDX-License-Identifier: Apache-2.0
// The environment's defaults for nodes.
#pragma once

#include <string>
#include <tendon/core/context_id.hpp>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon::v0::detail {

/// `asked`; if empty, TENDON_DOMAIN of the environment, and else "default".
[[nodiscard]] std::string domain_or_default(std::string asked);
/// The routers of TENDON_ROUTER="HOST:PORT,HOST:PORT".
[[nodiscard]] std::vector<std::string> routers_of_environment();
/// The address of a Context's unix socket in the runtime directory of this process.
[[nodiscard]] Result<std::string> unix_address_of(const ContextId& context);

}  // namespace tendon::v0::detail
