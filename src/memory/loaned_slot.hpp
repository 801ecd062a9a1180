// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "memory/slot_pool.hpp"

namespace tendon::v0::detail {

/// A slot taken from a pool. Dropping it returns the slot, unless the peer has it.
/// Threads: one at a time.
class LoanedSlot {
 public:
  LoanedSlot(std::shared_ptr<SlotPool> pool, Slot slot) : pool_(std::move(pool)), slot_(slot) {}
  LoanedSlot(const LoanedSlot&) = delete;
  LoanedSlot& operator=(const LoanedSlot&) = delete;
  ~LoanedSlot() {
    if (!sent_) pool_->release(slot_.id);
  }

  /// The same calls of the ledger of its pool, for this slot.
  [[nodiscard]] bool mark_sent(SlotPool::Ledger& ledger) noexcept {
    return sent_ = ledger.mark_sent(slot_.id);
  }
  void unmark_sent(SlotPool::Ledger& ledger) noexcept { sent_ = !ledger.unmark_sent(slot_.id); }

  [[nodiscard]] const Slot& slot() const noexcept { return slot_; }
  [[nodiscard]] SlotPool& pool() const noexcept { return *pool_; }

 private:
  std::shared_ptr<SlotPool> pool_;
  Slot slot_;
  bool sent_ = false;
};

}  // namespace tendon::v0::detail
