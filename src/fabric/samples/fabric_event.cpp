// SPDX-License-Identifier: Apache-2.0
#include <tendon/fabric/fabric_event.hpp>

#include "core/text.hpp"

namespace tendon::v0 {

std::ostream& operator<<(std::ostream& out, const FabricEvent& event) {
  out << to_string(event.kind);
  if (!event.node.empty()) out << ": " << detail::cleaned(event.node);
  if (!event.key.empty()) out << " on " << detail::cleaned(event.key);
  return out << ": " << detail::cleaned(event.reason);
}

}  // namespace tendon::v0
