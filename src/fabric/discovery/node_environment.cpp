// SPDX-License-Identifier: Apache-2.0
#include "fabric/discovery/node_environment.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/environment.hpp"
#include "session/machine.hpp"

namespace tendon::v0::detail {

std::string domain_or_default(std::string asked) {
  if (!asked.empty()) return asked;
  const std::string_view said = environment_variable("TENDON_DOMAIN");
  return std::string(said.empty() ? "default" : said);
}

std::vector<std::string> routers_of_environment() {
  std::vector<std::string> routers;
  for (std::string_view rest = environment_variable("TENDON_ROUTER"); !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
    if (!one.empty()) routers.emplace_back(one);
  }
  return routers;
}

Result<std::string> unix_address_of(const ContextId& context) {
  TENDON_TRY(directory, runtime_directory());
  return "unix:" + directory + '/' + context.to_string() + std::string(kNodeSuffix);
}

}  // namespace tendon::v0::detail
