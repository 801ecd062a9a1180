// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/mutex.hpp>
#include <utility>
#include <vector>

#include "cuda/device_pool.hpp"
#include "memory/slot_pool.hpp"

namespace tendon::v0::detail {

/// A link's hold of a slot on a GPU, made before the slot is filled. If the message is shown it
/// ends with the return of the peer; else with this object.
class DeviceHold {
 public:
  DeviceHold(std::shared_ptr<cuda::DevicePool> pool, cuda::DevicePool::LinkNumber link, SlotId id)
      : pool_(std::move(pool)), link_(link), id_(id) {}
  DeviceHold(const DeviceHold&) = delete;
  DeviceHold& operator=(const DeviceHold&) = delete;
  ~DeviceHold() {
    if (!is_shown_) pool_->take_back(link_, id_);
  }
  void note_shown() noexcept { is_shown_ = true; }

 private:
  const std::shared_ptr<cuda::DevicePool> pool_;
  const cuda::DevicePool::LinkNumber link_;
  const SlotId id_;
  bool is_shown_ = false;
};

/// The parts of one link in the ledgers of the pools on GPUs, each from its first hold on.
///
/// Owns:    its numbers there, and places for holds in its return ring.
/// Threads: thread-safe; its lock is taken before those of the pools.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look over the pools, and the cost of the ledger.
class DeviceHolds {
 public:
  explicit DeviceHolds(std::string peer_name) : peer_name_(std::move(peer_name)) {}

  /// Adds a hold, after reserving a place in the ring. Null: the link is beyond its share, or has
  /// ended.
  [[nodiscard]] std::unique_ptr<DeviceHold> give(SlotPool::Ledger& ledger,
                                                 const cuda::DeviceSlot& slot);
  /// False if the peer never had a hold in such a segment, and cannot return one.
  [[nodiscard]] bool take_return(SlotId id);
  void end(Death death);
  void retire();
  [[nodiscard]] std::uint64_t count() const;

 private:
  struct Part {
    std::shared_ptr<cuda::DevicePool> pool;
    cuda::DevicePool::LinkNumber link = 0;
  };
  const std::string peer_name_;
  mutable Mutex mutex_;
  std::vector<Part> parts_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
