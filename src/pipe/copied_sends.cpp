// SPDX-License-Identifier: Apache-2.0
#include "pipe/copied_sends.hpp"

#include "pipe/async_ops.hpp"

namespace tendon::v0::detail {

void CopiedSends::conclude(const Result<void>& usable) {
  std::erase_if(waiting_, [&](const Waiting& each) {
    const bool is_over = each.answer->is_over();
    if (!is_over && usable) return false;
    each.completion->conclude(is_over ? each.answer->result() : usable);
    return true;
  });
  count_.store(waiting_.size());
}

}  // namespace tendon::v0::detail
