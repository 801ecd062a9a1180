// SPDX-License-Identifier: Apache-2.0
#include "runtime/sleepers.hpp"

namespace tendon::v0::detail {

void Sleepers::announce(const LinkList& links) {
  const Lock lock(mutex_);
  ++count_;
  for (const auto& link : links) link->announce_sleep();
}

void Sleepers::retract(const LinkList& links) {
  const Lock lock(mutex_);
  if (--count_ != 0) return;
  for (const auto& link : links) link->announce_awake();
}

void Sleepers::announce_again(Link& link) {
  const Lock lock(mutex_);
  if (count_ != 0) link.announce_sleep();
}

void Sleepers::arm(const LinkList& links) {
  const Lock lock(mutex_);
  count_ = 1;
  for (const auto& link : links) link->announce_sleep();
}

void Sleepers::disarm(const LinkList& links) {
  const Lock lock(mutex_);
  if (count_ == 0) return;
  count_ = 0;
  for (const auto& link : links) link->announce_awake();
}

}  // namespace tendon::v0::detail
