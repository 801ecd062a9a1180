// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "memory/publish_pool.hpp"

namespace tendon::v0::detail {

/// The part of one link in the ledger of the publish pool, from its first hold on.
///
/// Owns:    its number there, and places for holds in its return ring.
/// Threads: the lock of the link's own ledger is held for every call but count().
/// Errors:  none.
/// Blocks:  never.
/// Cost:    that of the ledger.
class LinkHolds {
 public:
  /// `pool` is null for a peer that takes no holds.
  LinkHolds(std::shared_ptr<PublishPool> pool, std::string peer_name)
      : pool_(std::move(pool)), peer_name_(std::move(peer_name)) {}

  /// True if this slot may be shown to the peer.
  [[nodiscard]] bool can_hold(const PublishedSlot& slot) const noexcept {
    return &slot.pool() == pool_.get();
  }
  [[nodiscard]] bool taken() const noexcept { return pool_ != nullptr; }
  /// Adds a hold, after reserving a place in the ring.
  [[nodiscard]] PublishPool::Window give(SlotPool::Ledger& ledger, const PublishedSlot& slot,
                                         std::uint64_t share_bytes) {
    if (number() == 0) {
      const auto places = ledger.reserve_places(PublishPool::kMaxHoldsPerLink);
      number_ = pool_->add_link(peer_name_, places);
    }
    return pool_->give(number(), slot, share_bytes);
  }
  void take_back(SlotId id) { pool_->take_back(number(), id); }
  /// False if the peer never had a hold, and cannot return one.
  [[nodiscard]] bool take_return(SlotId id) {
    if (number() == 0) return false;
    pool_->take_return(number(), id);
    return true;
  }
  void end(Death death) {
    if (number() != 0) pool_->end_link(number(), death);
  }
  void retire() {
    if (number() != 0) pool_->retire_link(number());
  }
  [[nodiscard]] std::uint64_t count() const {
    return number() == 0 ? 0 : pool_->holds_of(number());
  }

 private:
  [[nodiscard]] PublishPool::LinkNumber number() const noexcept { return number_.load(); }

  const std::shared_ptr<PublishPool> pool_;
  const std::string peer_name_;
  std::atomic<PublishPool::LinkNumber> number_{0};  // 0: none yet
};

}  // namespace tendon::v0::detail
