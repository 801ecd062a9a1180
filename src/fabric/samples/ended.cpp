// SPDX-License-Identifier: Apache-2.0
#include <tendon/fabric/ended.hpp>

#include "core/text.hpp"

namespace tendon::v0 {

std::ostream& operator<<(std::ostream& out, const Ended& ended) {
  out << detail::cleaned(ended.publisher) << " ended on " << detail::cleaned(ended.key) << " ("
      << to_string(ended.reason) << "): ";
  if (ended.last_seen == 0)
    out << "no sample arrived here";
  else
    out << "sample " << ended.last_seen << " is the last that arrived here";
  return out << ", and " << (ended.exact ? "" : "at least ") << ended.last_published
             << " were published";
}

}  // namespace tendon::v0
