// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "cuda/device_segment.hpp"
#include "cuda/slot_table.hpp"
#include "memory/hold_ledger.hpp"

namespace tendon::v0::detail::cuda {

class DevicePool;

/// The owner's hold of one use of a slot on a GPU. It is filled before any reader sees it. Dropping
/// the last share drops the hold, so work that is enqueued on the slot keeps a share until the GPU
/// has done it.
class DeviceSlot {
 public:
  DeviceSlot(std::shared_ptr<DevicePool> pool, std::shared_ptr<DeviceSegment> segment, SlotId id,
             DeviceAddress address, std::uint64_t size_bytes);
  DeviceSlot(const DeviceSlot&) = delete;
  DeviceSlot& operator=(const DeviceSlot&) = delete;
  ~DeviceSlot();

  /// The name for peers: the segment is DevicePool::kFirstSegment or above.
  [[nodiscard]] SlotId id() const noexcept { return id_; }
  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] const std::shared_ptr<DeviceSegment>& segment() const noexcept { return segment_; }
  [[nodiscard]] DevicePool& pool() const noexcept { return *pool_; }

 private:
  const std::shared_ptr<DevicePool> pool_;
  const std::shared_ptr<DeviceSegment> segment_;
  const SlotId id_;
  const DeviceAddress address_;
  const std::uint64_t size_bytes_;
};

struct DevicePoolStats {
  std::uint64_t cap_bytes = 0;
  std::uint64_t resident_bytes = 0;  ///< of the GPU: all segments
  std::uint64_t used_bytes = 0;      ///< of slots that someone holds
  std::uint64_t segments = 0;
  HoldStats holds;
  std::string held_by;  ///< most of it, for people
};

/// Slots on one GPU that this process alone writes and peers read, with the ledger of their holds:
/// the same rules as those of PublishPool.
///
/// A slot is free when no hold is left. trim() releases a segment whose slots have been free for
/// kIdle; one that is in the way of another size is released at once. Links tell the peers that
/// have it mapped, because they see that its last share is dropped.
///
/// Owns:    segments on the GPU; shares of a PrimaryContext.
/// Threads: thread-safe; short locks, under which no call of the driver is made. The device
///          thread's lock is inside of them.
/// Errors:  message_too_large, resource_exhausted (says what holds most, or that the GPU is full),
///          device_lost, timeout, forked.
/// Blocks:  acquire(), for the device thread, if it needs another segment, until its deadline. A
///          segment that arrives later is there for the next call.
/// Cost:    two locks; another segment about 1 ms.
class DevicePool : public std::enable_shared_from_this<DevicePool> {
 public:
  /// Segment numbers from here on lie on GPUs.
  static constexpr std::uint32_t kFirstSegment = std::uint32_t{3} << 30;
  /// The most holds that a link may have at once.
  static constexpr std::uint32_t kMaxHoldsPerLink = 1024;
  static constexpr std::chrono::seconds kIdle{10};
  using TimePoint = std::chrono::steady_clock::time_point;

  /// `first_segment` is the number of its first segment, by which peers know it.
  DevicePool(std::shared_ptr<PrimaryContext> context, DeviceThread& thread, std::uint64_t cap_bytes,
             std::uint32_t first_segment = kFirstSegment);
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;
  ~DevicePool();

  /// A slot of at least `size_bytes`, with the owner's hold.
  [[nodiscard]] Result<std::shared_ptr<DeviceSlot>> acquire(std::uint64_t size_bytes,
                                                            Deadline deadline);
  /// Releases segments that have been idle for kIdle at `now`.
  void trim(TimePoint now);
  /// The time when trim() would release the next one; empty: none is idle.
  [[nodiscard]] std::optional<TimePoint> next_trim() const;

  // The same calls of the ledger, after which a slot without holds may be used again
  using LinkNumber = HoldLedger::LinkNumber;
  using Window = HoldLedger::Window;
  [[nodiscard]] LinkNumber add_link(std::string name, std::uint32_t places = kMaxHoldsPerLink) {
    return holds_.add_link(std::move(name), places, HoldLedger::Reads::in_place);
  }
  [[nodiscard]] Window give(LinkNumber link, const DeviceSlot& slot) {
    return holds_.give(link, slot.id(), HoldLedger::kWholeShare);
  }
  void take_back(LinkNumber link, SlotId id);
  /// False (and counted) when the ledger knows no such hold.
  bool take_return(LinkNumber link, SlotId id);
  void end_link(LinkNumber link, Death death);
  void retire_link(LinkNumber link) { holds_.retire_link(link); }
  [[nodiscard]] std::uint64_t holds_of(LinkNumber link) const { return holds_.holds_of(link); }

  /// True for the number of one of its segments, even a released one.
  [[nodiscard]] bool numbers(std::uint32_t segment) const noexcept {
    return segment - first_segment_ < SlotTable::kMostNumbers;
  }
  [[nodiscard]] DevicePoolStats stats() const;
  [[nodiscard]] std::vector<PoolHolder> holders() const { return holds_.holders(); }
  [[nodiscard]] PrimaryContext& context() const noexcept { return *context_; }

 private:
  friend class DeviceSlot;

  /// A segment that the device thread is making, for all callers that wait for slots of its size.
  struct Making {
    std::uint32_t number;
    bool is_over = false;
    std::optional<Error> error{};
  };

  void drop_owner(SlotId id);
  void free_slots(const std::vector<SlotId>& ids);
  [[nodiscard]] Error failed(std::uint64_t slot_bytes, const Making& making)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<std::shared_ptr<Making>> grow(std::uint64_t slot_bytes)
      TENDON_REQUIRES(mutex_);
  enum class Try : std::uint8_t { first, second };
  [[nodiscard]] Result<void> make(std::uint64_t slot_bytes, Try which);
  void made(std::uint64_t slot_bytes, Result<std::shared_ptr<DeviceSegment>> segment, Try which);
  /// False: none was idle.
  bool release_idle(TimePoint before) TENDON_REQUIRES(mutex_);
  void release(const std::vector<std::uint32_t>& numbers) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Error full(std::uint64_t slot_bytes) const TENDON_REQUIRES(mutex_);

  const std::shared_ptr<PrimaryContext> context_;
  DeviceThread& thread_;
  const std::uint64_t cap_bytes_;
  const std::uint32_t first_segment_;
  HoldLedger holds_;
  mutable Mutex mutex_;
  CondVar changed_;
  SlotTable table_ TENDON_GUARDED_BY(mutex_);
  std::map<std::uint32_t, std::shared_ptr<DeviceSegment>> segments_ TENDON_GUARDED_BY(mutex_);
  // By size. A failed one stays until a caller has its error.
  std::map<std::uint64_t, std::shared_ptr<Making>> making_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail::cuda
