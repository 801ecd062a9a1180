// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "memory/cold_fill.hpp"
#include "memory/segment.hpp"
#include "memory/slot.hpp"

namespace tendon::v0::detail {

/// Slots of shared memory in power-of-two size classes, and the private ledger that alone decides
/// which side may use which one.
///
///   free -> acquire -> loaned -> mark_sent -> sent -> take_return -> free
///                      loaned -> release   -> free
///                      sent -> quarantine_sent -> quarantined -> free_sent (proved) -> free
///
/// The cap bounds memory that has pages, that of free slots too unless the system takes them back.
/// If it takes none (Writers::maker_only), a segment with free slots only is cut anew into slots of
/// the wanted size, under another number.
///
/// Owns:    the segments and the ledger. Nothing that a peer can write takes part in a decision: a
///          return that is not in the ledger is counted and ignored.
/// Threads: thread-safe; one short lock.
/// Errors:  message_too_large (above the cap), resource_exhausted (says what each side holds).
/// Blocks:  never.
/// Cost:    a lock and a stack; system calls only when a class grows.
class SlotPool {
 public:
  /// `owner` names the pool in errors: "link to vision (host a, pid 12)".
  SlotPool(std::string owner, std::uint64_t cap_bytes, Writers writers = Writers::maker_and_peer);

  /// The ledger under its lock, for as long as the object lives: for several changes at once, or
  /// for changes that belong together with a write to a ring.
  class TENDON_SCOPED_LOCKABLE Ledger {
   public:
    explicit Ledger(SlotPool& pool) TENDON_ACQUIRES(pool.mutex_)
        : pool_(pool), lock_(pool.mutex_) {}
    Ledger(const Ledger&) = delete;
    Ledger& operator=(const Ledger&) = delete;
    ~Ledger() TENDON_RELEASES() = default;

    [[nodiscard]] Result<Slot> acquire(std::uint64_t size_bytes) {
      pool_.mutex_.assert_held();
      return pool_.acquire_locked(size_bytes);
    }
    /// Takes a free slot whose memory was touched before, if there is one: never grows, never
    /// fails. Below warm_slots() of them, and if the cap allows it, an untouched one will do.
    [[nodiscard]] std::optional<Slot> acquire_warm(std::uint64_t size_bytes) noexcept {
      pool_.mutex_.assert_held();
      return pool_.acquire_warm(size_bytes);
    }
    /// True if acquire_warm() would probably find one.
    [[nodiscard]] bool has_warm(std::uint64_t size_bytes) noexcept {
      pool_.mutex_.assert_held();
      return pool_.has_warm(size_bytes);
    }
    /// Marks the slot as the peer's. False if it is not loaned under this id.
    [[nodiscard]] bool mark_sent(SlotId id) noexcept {
      pool_.mutex_.assert_held();
      return pool_.mark_sent(id);
    }
    /// Undoes mark_sent() of an unpublished slot: sent -> loaned. False if the link failed
    /// meanwhile: the slot is in quarantine or free, its borrower must not touch it again.
    bool unmark_sent(SlotId id) noexcept {
      pool_.mutex_.assert_held();
      return pool_.unmark_sent(id);
    }
    /// Handles a return. False (and counted) if the ledger knows no such loan.
    bool take_return(SlotId id) noexcept {
      pool_.mutex_.assert_held();
      return pool_.take_return(id);
    }
    /// Handles a link that failed without proof of death: slots with the peer stay out of use.
    void quarantine_sent() noexcept {
      pool_.mutex_.assert_held();
      pool_.quarantine_sent();
    }
    /// Handles the proof of the peer's death: every slot that it had, quarantined or not, is free.
    void free_sent() noexcept {
      pool_.mutex_.assert_held();
      pool_.free_sent();
    }
    /// The segments with id >= `first`, in order, which the peer does not know yet.
    [[nodiscard]] std::vector<SegmentInfo> segments_from(std::uint32_t first) const {
      pool_.mutex_.assert_held();
      return pool_.segments_from(first);
    }
    /// Reserves up to `count` places of the return ring for other uses: this pool has so many slots
    /// less from now on. Returns the number of reserved places.
    [[nodiscard]] std::uint32_t reserve_places(std::uint32_t count) noexcept {
      pool_.mutex_.assert_held();
      return pool_.reserve_places(count);
    }

   private:
    SlotPool& pool_;
    const Lock lock_;
  };
  // Unchecked: clang assumes that the returned object ends here.
  [[nodiscard]] Ledger ledger() noexcept TENDON_ACQUIRES(mutex_) TENDON_UNCHECKED_LOCKS {
    return Ledger(*this);
  }
  [[nodiscard]] Mutex& mutex() const noexcept TENDON_RETURNS_LOCK(mutex_) { return mutex_; }

  [[nodiscard]] Result<Slot> acquire(std::uint64_t size_bytes);
  /// Fills a large, untouched slot fast, while no peer has its segment; else does nothing.
  [[nodiscard]] ColdFill cold_fill(const Slot& slot) const;
  /// Returns a loaned slot that was never sent.
  void release(SlotId id) noexcept;
  /// Returns no page from now on: twice the cap, and a slot of each size more, may stay.
  void keep_pages() noexcept;
  /// Touches the pages of up to `slot_count` free slots that fit `size_bytes`, in pieces of
  /// kPrefaultBytes, unless so many of that size, and warm_slots(), are touched. Asks `keep_going`
  /// between pieces. Makes the first segment of a size if needed.
  template <class KeepGoing>
  Result<void> prefault(std::uint64_t size_bytes, std::uint32_t slot_count, KeepGoing keep_going);

  [[nodiscard]] std::uint32_t segment_count() const noexcept {
    return segment_count_.load(std::memory_order_acquire);
  }
  /// The segment of these bytes, and their offset; nullopt if they lie in none of this pool.
  struct Location {
    std::uint32_t segment_id = 0;
    std::uint64_t offset = 0;
    std::shared_ptr<Segment> segment;
  };
  [[nodiscard]] std::optional<Location> locate(Bytes bytes) const;
  [[nodiscard]] SlotPoolStats stats() const;
  [[nodiscard]] std::uint64_t cap_bytes() const noexcept { return cap_bytes_; }
  /// How many slots of a size are touched before a returned one is awaited. At least so many that
  /// one is filled while the other is read. More of small ones, so that the owner looks seldom for
  /// returns, which lie in the peer's cache.
  static constexpr std::uint32_t kLeastWarmSlots = 2;
  [[nodiscard]] static constexpr std::uint32_t warm_slots(std::uint64_t slot_bytes) noexcept {
    constexpr std::uint64_t kWarmBytes = 64 * 1024;
    return std::max(static_cast<std::uint32_t>(kWarmBytes / slot_bytes), kLeastWarmSlots);
  }
  static constexpr std::uint64_t kSmallestSlotBytes = 4096;
  /// A piece of prefault(), some 40 us: a thread that maps memory meanwhile waits for so long.
  static constexpr std::uint64_t kPrefaultBytes = 128 * 1024;
  /// The largest cap: no process can address more.
  static constexpr std::uint64_t kLargestCapBytes = 1ull << 47;
  static constexpr std::uint32_t kMaxSegments = 256;
  /// A return ring has as many places, so that it is never full.
  static constexpr std::uint32_t kMaxSlots = 8192;
  /// The size of the slot in which a message of `size_bytes` travels.
  [[nodiscard]] static std::uint64_t slot_bytes_for(std::uint64_t size_bytes) noexcept;
  /// The slots of a class that the owner guarantees under a cap: the same at both ends.
  [[nodiscard]] static std::uint32_t guaranteed_count(std::uint64_t slot_bytes,
                                                      std::uint64_t cap_bytes) noexcept;

 private:
  enum class State : std::uint8_t { free, loaned, sent, quarantined };
  struct Entry {
    std::uint64_t generation = 0;
    State state = State::free;
    bool touched = false;
    std::uint64_t part_bytes = 0;  // of it that has pages, while it is not touched as a whole
  };
  struct OwnedSegment {
    std::shared_ptr<Segment> memory;
    std::uint64_t slot_bytes = 0;
    std::vector<Entry> ledger;
    // `cut_anew`: its memory belongs to another segment now, and none of its slots is used.
    enum class Pages : std::uint8_t { given_back, kept, cut_anew } pages = Pages::given_back;
  };
  struct SizeClass {
    std::vector<SlotId> free;         // a stack: the warmest slot is taken first
    std::uint32_t touched_count = 0;  // free or not
    bool has_segment = false;
  };

  [[nodiscard]] Result<Slot> acquire_locked(std::uint64_t size_bytes) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::optional<Slot> acquire_warm(std::uint64_t size_bytes) noexcept
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool has_warm(std::uint64_t size_bytes) noexcept TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool mark_sent(SlotId id) noexcept TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool unmark_sent(SlotId id) noexcept TENDON_REQUIRES(mutex_);
  bool take_return(SlotId id) noexcept TENDON_REQUIRES(mutex_);
  void quarantine_sent() noexcept TENDON_REQUIRES(mutex_);
  void free_sent() noexcept TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::vector<SegmentInfo> segments_from(std::uint32_t first) const
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::uint32_t reserve_places(std::uint32_t count) noexcept TENDON_REQUIRES(mutex_);
  [[nodiscard]] Slot take_top(SizeClass& size_class, Slot::Pages pages) noexcept
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> claim_pages(OwnedSegment& segment, std::uint32_t slot)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<Slot::Pages> ready_top(std::uint64_t slot_bytes) TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<void> grow(std::uint64_t slot_bytes) TENDON_REQUIRES(mutex_);
  /// A size class with larger slots of which a free one has its pages; null: there is none.
  [[nodiscard]] SizeClass* larger_with_pages(std::uint64_t slot_bytes) noexcept
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool make_room(std::uint64_t slot_bytes, std::uint64_t needed_bytes)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool cut_anew(std::uint64_t slot_bytes) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::optional<std::uint32_t> segment_to_cut(std::uint64_t slot_bytes) const
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::optional<std::uint32_t> cut_of(const std::shared_ptr<Segment>& memory,
                                                    std::uint64_t slot_bytes)
      TENDON_REQUIRES(mutex_);
  [[nodiscard]] Entry* find(SlotId id) noexcept TENDON_REQUIRES(mutex_);
  void put_back(SlotId id, Entry& entry) noexcept TENDON_REQUIRES(mutex_);
  [[nodiscard]] Error exhausted(std::uint64_t slot_bytes) const TENDON_REQUIRES(mutex_);
  [[nodiscard]] SizeClass& class_of(std::uint64_t slot_bytes) noexcept TENDON_REQUIRES(mutex_);
  [[nodiscard]] Result<std::vector<SlotId>> free_slots(std::uint64_t size_bytes,
                                                       std::uint32_t count);
  [[nodiscard]] Result<bool> prefault_piece(SlotId id, std::uint64_t offset, std::uint64_t limit,
                                            std::uint32_t slot_count);

  const std::string owner_;
  const std::uint64_t cap_bytes_;
  const Writers writers_;
  const std::uint32_t process_ = process_number();
  mutable Mutex mutex_;
  std::vector<OwnedSegment> segments_ TENDON_GUARDED_BY(mutex_);
  std::array<SizeClass, 64> classes_ TENDON_GUARDED_BY(mutex_);
  std::atomic<std::uint32_t> segment_count_{0};  // of segments_, for a look without the lock
  bool keeps_pages_ TENDON_GUARDED_BY(mutex_) = false;
  std::uint32_t slot_count_ TENDON_GUARDED_BY(mutex_) = 0;
  std::uint32_t reserved_places_ TENDON_GUARDED_BY(mutex_) = 0;
  SlotPoolStats stats_ TENDON_GUARDED_BY(mutex_);
};

template <class KeepGoing>
Result<void> SlotPool::prefault(std::uint64_t size_bytes, std::uint32_t slot_count,
                                KeepGoing keep_going) {
  TENDON_TRY(slots, free_slots(size_bytes, slot_count));
  for (const SlotId id : slots) {
    for (std::uint64_t offset = 0; keep_going(); offset += kPrefaultBytes) {
      auto more = prefault_piece(id, offset, size_bytes, slot_count);
      if (!more) return std::move(more).error();
      if (!*more) break;
    }
  }
  return {};
}

}  // namespace tendon::v0::detail
