// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "memory/death.hpp"
#include "memory/slot_pool.hpp"

namespace tendon::v0::detail {

class PublishPool;

/// The owner's hold of one use of a slot: history, local readers and sends over sockets share it.
/// Filled before it is shown to anybody. Dropping the last share drops the hold.
/// Threads: those that share it synchronise the bytes.
class PublishedSlot {
 public:
  PublishedSlot(std::shared_ptr<PublishPool> pool, Slot slot)
      : pool_(std::move(pool)), slot_(slot) {}
  PublishedSlot(const PublishedSlot&) = delete;
  PublishedSlot& operator=(const PublishedSlot&) = delete;
  ~PublishedSlot();

  /// As it is named to readers: the segment is PublishPool::kFirstSegment or above.
  [[nodiscard]] SlotId id() const noexcept { return slot_.id; }
  [[nodiscard]] MutableBytes memory() const noexcept { return slot_.memory; }
  [[nodiscard]] PublishPool& pool() const noexcept { return *pool_; }

 private:
  std::shared_ptr<PublishPool> pool_;
  Slot slot_;
};

struct PublishPoolStats {
  SlotPoolStats slots;            ///< loaned_count: in use, by this process or by links
  std::uint64_t holds = 0;        ///< of links, quarantined or not
  std::uint64_t quarantined = 0;  ///< of these: of links that failed without proof of death
  std::uint64_t ignored_returns = 0;
};

/// Slots that many links may read at once, and the private ledger of their *holds*: {slot,
/// generation, link}, one for each pipe that has the slot. The owner is a holder too. A slot is
/// free when no hold is left.
///
///   acquire -> owner's hold -> drop
///              give         -> a link's hold -> take_return, take_back, or proof of death
///
/// A link that failed without proof keeps its holds, in quarantine, until they return or the proof
/// comes; it gets no further ones. Nothing a peer can write decides anything.
///
/// Owns:    segments that it alone may write, with their descriptors: links join later.
/// Threads: thread-safe; one short lock, which is taken inside of a link's sending lock.
/// Errors:  message_too_large, resource_exhausted (says what holds most).
/// Blocks:  never.
/// Cost:    a lock and a look over the links that have the slot.
class PublishPool : public std::enable_shared_from_this<PublishPool> {
 public:
  /// Numbers of segments from here on are not of a link's own slots.
  static constexpr std::uint32_t kFirstSegment = std::uint32_t{1} << 31;
  /// Places in its return ring that a link keeps for holds, and so the most it has.
  static constexpr std::uint32_t kMaxHoldsPerLink = 2048;

  explicit PublishPool(std::uint64_t cap_bytes);

  /// A slot of at least `size_bytes`, with the owner's hold.
  [[nodiscard]] Result<std::shared_ptr<PublishedSlot>> acquire(std::uint64_t size_bytes);
  /// As SlotPool::prefault().
  template <class KeepGoing>
  Result<void> prefault(std::uint64_t size_bytes, std::uint32_t slot_count, KeepGoing keep_going) {
    return slots_.prefault(size_bytes, slot_count, keep_going);
  }
  /// The segment of a slot, named as in its id.
  [[nodiscard]] SegmentInfo segment_of(const PublishedSlot& slot);

  // Links. Each has a number that is never used again.
  using LinkNumber = std::uint64_t;
  enum class Window : std::uint8_t { open, closed, beyond_share };
  /// `places`: reserved in its return ring. `name` is for errors.
  enum class Reads : std::uint8_t { in_place, over_socket };
  [[nodiscard]] LinkNumber add_link(std::string name, std::uint32_t places,
                                    Reads reads = Reads::in_place);
  /// One more hold of this link, before the slot is shown to it. Closed: it has ended. Beyond its
  /// share, it gets a copy instead: it has as many holds as places, or `share_bytes` and two slots
  /// of this size, or all links together leave the owner fewer than kOwnersSlots of this size.
  [[nodiscard]] Window give(LinkNumber link, const PublishedSlot& slot,
                            std::uint64_t share_bytes = kWholeShare);
  static constexpr std::uint64_t kWholeShare = ~std::uint64_t{0};  ///< half of the pool
  static constexpr std::uint64_t kOwnersSlots = 2;
  /// The slot could not be shown after all.
  void take_back(LinkNumber link, SlotId id);
  /// What the link's return ring says. False (and counted) when the ledger knows no such hold.
  bool take_return(LinkNumber link, SlotId id);
  /// Proved: its holds are free. Not proved: they are in quarantine; the proof may come later.
  void end_link(LinkNumber link, Death death);
  /// It has ended in order: no further holds, and those that it has are returned one by one.
  void retire_link(LinkNumber link);
  [[nodiscard]] std::uint64_t holds_of(LinkNumber link) const;

  // Memory that sends over sockets keep
  /// Slots that readers over sockets hold, each once, and the copies that go instead [bytes].
  /// No lock: each publish asks, also where nobody reads over sockets.
  [[nodiscard]] std::uint64_t sending_bytes() const noexcept { return sending_bytes_.load(); }
  void count_copy(std::uint64_t size_bytes);
  void uncount_copy(std::uint64_t size_bytes);

  [[nodiscard]] PublishPoolStats stats() const;
  [[nodiscard]] std::uint64_t cap_bytes() const noexcept { return slots_.cap_bytes(); }

 private:
  friend class PublishedSlot;

  struct Share {
    LinkNumber link;
    std::uint32_t holds;
  };
  struct Use {
    std::uint64_t generation = 0;
    bool owned = false;
    std::uint32_t sends = 0;    // holds of readers over sockets
    std::vector<Share> shares;  // of links that have at least one hold
  };
  enum class Standing : std::uint8_t { live, retired, quarantined };
  struct Reader {
    std::string name;
    std::uint32_t places;
    Reads reads = Reads::in_place;
    std::uint32_t holds = 0;
    std::uint64_t bytes = 0;  // of slots, each once
    Standing standing = Standing::live;
  };

  void drop_owner(SlotId id);
  [[nodiscard]] Use* find(SlotId id) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t bytes_of(SlotId id) const TENDON_REQUIRES(mutex_);
  [[nodiscard]] bool end_hold(LinkNumber link, SlotId id) TENDON_REQUIRES(mutex_);
  void free_if_unheld(SlotId id, const Use& use) TENDON_REQUIRES(mutex_);
  void end_sends(Use& use, std::uint32_t count, std::uint64_t slot_bytes) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::string most_held() const;

  SlotPool slots_;
  const std::uint32_t process_ = process_number();
  mutable Mutex mutex_;
  struct Segment {
    std::uint64_t slot_bytes = 0;
    std::vector<Use> uses;
  };
  std::vector<Segment> segments_ TENDON_GUARDED_BY(mutex_);
  std::map<LinkNumber, Reader> readers_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t held_bytes_ TENDON_GUARDED_BY(mutex_) = 0;  // of slots that links have, each once
  std::atomic<std::uint64_t> sending_bytes_{0};             // changed under the lock
  LinkNumber last_link_ TENDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t ignored_returns_ TENDON_GUARDED_BY(mutex_) = 0;
};

}  // namespace tendon::v0::detail
