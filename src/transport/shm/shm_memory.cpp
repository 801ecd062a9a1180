// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shm_memory.hpp"

#include <poll.h>
#include <unistd.h>

#include <bit>
#include <new>

#include "core/failpoint.hpp"

namespace tendon::inline v0::detail {
ShmMemory::ShmMemory(std::shared_ptr<Segment> mine, std::shared_ptr<Segment> theirs,
                     OwnedFd peer_doorbell, std::uint64_t peer_cap_bytes)
    : mine_(std::move(mine)),
      theirs_(std::move(theirs)),
      mine_block_(std::launder(reinterpret_cast<ControlBlock*>(mine_->data()))),
      their_block_(std::launder(reinterpret_cast<ControlBlock*>(theirs_->data()))),
      peer_doorbell_(std::move(peer_doorbell)),
      peer_cap_bytes_(peer_cap_bytes),
      epoch_(fork_epoch()),
      returns_(mine_block_->returns, mine_block_->return_entries) {}

void ShmMemory::ring_doorbell() noexcept {
  if (epoch_ != fork_epoch()) return;
  doorbells_.fetch_add(1, std::memory_order_relaxed);
  // The peer may clear O_NONBLOCK of the description that both share at any time. A full counter
  // wakes it just as well, so nothing is written that could wait.
  pollfd room{peer_doorbell_.get(), POLLOUT, 0};
  if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(peer_doorbell_.get(), &one, sizeof one);
}

bool ShmMemory::lend(std::uint64_t slot_bytes) noexcept {
  auto& count = lent_count_[static_cast<std::size_t>(std::countr_zero(slot_bytes))];
  const std::uint32_t guaranteed = SlotPool::guaranteed_count(slot_bytes, peer_cap_bytes_);
  // At least two stay in circulation, and half of the bytes: SEMANTICS 2.6.
  if (count.load(std::memory_order_relaxed) + 1 + 2 > guaranteed) return false;
  if (lent_bytes_.load(std::memory_order_relaxed) + slot_bytes > peer_cap_bytes_ / 2) return false;
  count.fetch_add(1, std::memory_order_relaxed);
  lent_bytes_.fetch_add(slot_bytes, std::memory_order_relaxed);
  return true;
}

void ShmMemory::give_back(SlotId id, std::uint64_t slot_bytes, bool lent) noexcept {
  // In a forked child nothing is mapped and nothing belongs to it.
  if (epoch_ != fork_epoch()) return;
  if (lent) {
    lent_count_[static_cast<std::size_t>(std::countr_zero(slot_bytes))].fetch_sub(
        1, std::memory_order_relaxed);
    lent_bytes_.fetch_sub(slot_bytes, std::memory_order_relaxed);
  }
  {
    std::lock_guard lock(return_mutex_);
    // Never full with an honest owner: there are as many places as slots.
    if (!returns_.stage({id.segment, id.slot, id.generation})) return;
    (void)TENDON_FAILPOINT("shm.return.before_publish");
    returns_.publish();
  }
  if (peer_sleep().asleep(SleepWord<>::kForReturns)) ring_doorbell();
}

}  // namespace tendon::inline v0::detail
