// SPDX-License-Identifier: Apache-2.0
#include "runtime/leadership.hpp"

namespace tendon::v0::detail {

bool Leadership::enter(std::uint64_t seen, Deadline deadline) {
  const Lock lock(mutex_);
  if (progress_count_.load() != seen || life_.unusable()) return false;
  if (!caller_leads_) {
    caller_leads_ = true;
    return true;
  }
  ++follower_count_;
  while (progress_count_.load() == seen && caller_leads_ && !life_.unusable())
    if (!follower_wake_.wait_until(mutex_, deadline)) break;
  --follower_count_;
  return false;
}

void Leadership::leave() {
  const Lock lock(mutex_);
  caller_leads_ = false;
  if (follower_count_ != 0) follower_wake_.notify_all();
  if (service_parked_long_) service_wake_.notify_one();
  if (ring_taken_.exchange(false) && service_in_epoll_.load()) loop_.ring();
}

void Leadership::pass_ring_on(Deadline deadline) {
  if (!ring_taken_.load()) return;
  const Lock lock(mutex_);
  ring_taken_ = false;
  if (!service_in_epoll_) return;
  loop_.ring();
  while (service_in_epoll_ && service_left_.wait_until(mutex_, deadline)) {
  }
}

void Leadership::service_leaves_epoll() {
  const Lock lock(mutex_);
  service_in_epoll_ = false;
  service_left_.notify_all();
}

void Leadership::count_progress() {
  progress_count_.fetch_add(1);
  if (follower_count_ != 0) follower_wake_.notify_all();
}

void Leadership::wake_followers() {
  const Lock lock(mutex_);
  count_progress();
}

void Leadership::wake_others() {
  const Lock lock(mutex_);
  count_progress();
  // The caller in the epoll may wait for the data that this thread took in, or for the ring it
  // took.
  if (caller_leads_) loop_.ring();
}

void Leadership::wake_service() {
  {
    const Lock lock(mutex_);
    service_wake_.notify_one();
  }
  loop_.ring();
}

void Leadership::wake_all() {
  {
    const Lock lock(mutex_);
    progress_count_.fetch_add(1);
    follower_wake_.notify_all();
    service_wake_.notify_all();
  }
  loop_.ring();
}

}  // namespace tendon::v0::detail
