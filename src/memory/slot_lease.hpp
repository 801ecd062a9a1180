// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "memory/slot_pool.hpp"

namespace tendon::inline v0::detail {

/// A slot taken from a pool and not sent. Dropping it gives the slot back.
class SlotLease {
 public:
  SlotLease(std::shared_ptr<SlotPool> pool, Slot slot) : pool_(std::move(pool)), slot_(slot) {}
  SlotLease(const SlotLease&) = delete;
  SlotLease& operator=(const SlotLease&) = delete;
  ~SlotLease() { pool_->release(slot_.id); }  // ignored by the ledger when the peer has it by now

  [[nodiscard]] const Slot& slot() const noexcept { return slot_; }
  [[nodiscard]] SlotPool& pool() const noexcept { return *pool_; }

 private:
  std::shared_ptr<SlotPool> pool_;
  Slot slot_;
};

}  // namespace tendon::inline v0::detail
