// SPDX-License-Identifier: Apache-2.0
#include <tendon/fabric/gap.hpp>

#include "core/text.hpp"

namespace tendon::v0 {

std::ostream& operator<<(std::ostream& out, const Gap& gap) {
  return out << "samples " << gap.first << " to " << gap.last << " of "
             << detail::cleaned(gap.publisher) << " are missing (" << to_string(gap.reason) << ')';
}

}  // namespace tendon::v0
