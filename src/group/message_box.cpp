// SPDX-License-Identifier: Apache-2.0
#include "group/message_box.hpp"

namespace tendon::inline v0::detail {

void MessageBox::put(std::uint32_t place, Inbound&& inbound) {
  std::lock_guard lock(mutex_);
  entries_.push_back({place, std::move(inbound)});
}

}  // namespace tendon::inline v0::detail
