// SPDX-License-Identifier: Apache-2.0
#include "group/membership/held_steps.hpp"

namespace tendon::v0::detail {

bool HeldSteps::add(HeldBytes::Share share) {
  const Lock lock(mutex_);
  let_go_.push_back(std::move(share));
  return !any_.exchange(true, std::memory_order_release);
}

void HeldSteps::settle() {
  if (!any_.load(std::memory_order_acquire)) return;
  const Lock receiving(link_->receive_mutex());
  std::vector<HeldBytes::Share> shares;
  {
    const Lock lock(mutex_);
    shares.swap(let_go_);
    any_ = false;
  }
  shares.clear();
}

void HeldSteps::settle_soon() {
  if (!context_->unusable()) context_->add_work(shared_from_this());
}

}  // namespace tendon::v0::detail
