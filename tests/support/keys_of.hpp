// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <limits>
#include <set>
#include <string>

#include "fabric/discovery/discovery.hpp"

namespace tendon::test {

/// Returns all keys that this discovery knows now.
inline std::set<std::string> keys_of(detail::Discovery& discovery) {
  std::set<std::string> keys;
  const auto reader = discovery.read();
  for (auto& changed : reader->take(std::numeric_limits<std::size_t>::max()))
    keys.insert(std::move(changed.key));
  return keys;
}

}  // namespace tendon::test
