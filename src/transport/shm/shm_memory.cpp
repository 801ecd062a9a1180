// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/shm_memory.hpp"

#include <poll.h>
#include <unistd.h>

#include <bit>
#include <new>

#include "core/failpoint.hpp"
#include "memory/publish_pool.hpp"

namespace tendon::v0::detail {
ShmMemory::ShmMemory(std::shared_ptr<Segment> mine, std::shared_ptr<Segment> theirs,
                     OwnedFd peer_doorbell, std::uint64_t peer_cap_bytes)
    : mine_(std::move(mine)),
      theirs_(std::move(theirs)),
      mine_block_(std::launder(reinterpret_cast<ControlBlock*>(mine_->data()))),
      their_block_(std::launder(reinterpret_cast<ControlBlock*>(theirs_->data()))),
      peer_doorbell_(std::move(peer_doorbell)),
      peer_cap_bytes_(peer_cap_bytes),
      process_(process_number()),
      returns_(mine_block_->returns, mine_block_->return_entries) {}

void ShmMemory::ring_doorbell() noexcept {
  if (process_ != process_number()) return;
  doorbells_.fetch_add(1, std::memory_order_relaxed);
  const Lock lock(doorbell_mutex_);
  // The peer may clear O_NONBLOCK of the description that both share at any time. A full counter
  // wakes it just as well, so nothing is written that could wait.
  pollfd room{peer_doorbell_.get(), POLLOUT, 0};
  if (poll(&room, 1, 0) != 1 || (room.revents & POLLOUT) == 0) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(peer_doorbell_.get(), &one, sizeof one);
}

void ShmMemory::hang_up() noexcept {
  if (holds_.load(std::memory_order_relaxed) != 0) return;
  const Lock lock(doorbell_mutex_);
  peer_doorbell_.reset();
}

void ShmMemory::Lent::add_one(std::uint64_t slot_bytes) noexcept {
  add(bytes, slot_bytes);
  add(count[static_cast<std::size_t>(std::countr_zero(slot_bytes))], 1);
}

bool ShmMemory::lend(std::uint64_t slot_bytes) noexcept {
  const auto size_class = static_cast<std::size_t>(std::countr_zero(slot_bytes));
  // A slot that returns meanwhile is at worst counted as lent.
  const std::uint32_t count = lent_.count[size_class].load(std::memory_order_relaxed) -
                              came_back_.count[size_class].load(std::memory_order_relaxed);
  const std::uint64_t bytes = lent_.bytes.load(std::memory_order_relaxed) -
                              came_back_.bytes.load(std::memory_order_relaxed);
  // Two stay in circulation, or one if the cap holds only two, and half of the bytes:
  // docs/memory.md, "A consumer that keeps what it receives".
  const std::uint32_t guaranteed = SlotPool::guaranteed_count(slot_bytes, peer_cap_bytes_);
  const std::uint32_t circulating = guaranteed == 2 ? 1 : 2;
  if (count + 1 + circulating > guaranteed) return false;
  if (bytes + slot_bytes > peer_cap_bytes_ / 2) return false;
  lent_.add_one(slot_bytes);
  return true;
}

std::uint64_t ShmMemory::lent_count() const noexcept {
  std::uint64_t count = holds_.load(std::memory_order_relaxed);
  // Returned slots were lent before, so the returns are read first.
  for (std::size_t i = 0; i < lent_.count.size(); ++i) {
    const std::uint32_t back = came_back_.count[i].load(std::memory_order_acquire);
    count += lent_.count[i].load(std::memory_order_relaxed) - back;
  }
  return count;
}

void ShmMemory::give_back(SlotId id, std::uint64_t lent_bytes) noexcept {
  // In a forked child nothing is mapped, and it owns nothing.
  if (process_ != process_number()) return;
  {
    const Lock lock(return_mutex_);
    if (lent_bytes != 0) came_back_.add_one(lent_bytes);
    if (id.segment >= PublishPool::kFirstSegment) holds_.fetch_sub(1, std::memory_order_relaxed);
    // Never full with an honest owner, which reserves a place for each slot that it lends.
    if (!returns_.stage({id.segment, id.slot, id.generation})) {
      dropped_returns_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    (void)TENDON_FAILPOINT("shm.return.before_publish");
    returns_.publish();
  }
  wake(SleepWord<>::kForReturns);
}

}  // namespace tendon::v0::detail
