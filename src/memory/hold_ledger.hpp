// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/memory/pool.hpp>
#include <vector>

#include "core/fork_guard.hpp"
#include "memory/death.hpp"
#include "memory/slot.hpp"
#include "memory/slot_use.hpp"

namespace tendon::v0::detail {

struct HoldStats {
  std::uint64_t holds = 0;        ///< of links, quarantined or not
  std::uint64_t quarantined = 0;  ///< of these: those of links that failed without proof of death
  std::uint64_t ignored_returns = 0;
};

/// The private ledger of *holds* of a pool whose slots many links may read at once: {slot,
/// generation, link}, one for each pipe that has the slot. The owner is a holder too. A slot is
/// free when no hold is left.
///
///   begin -> owner's hold -> drop_owner
///            give()       -> a link's hold -> take_return, take_back, or proof of death
///
/// A link that failed without proof keeps its holds, in quarantine, until they return or the proof
/// arrives; it gets no further ones. Nothing that a peer can write decides anything.
///
/// A slot is only a name and a number of bytes here. Its memory belongs to the pool, which is told
/// once of each slot without holds, and reuses it with another generation.
///
/// Owns:    names and counts.
/// Threads: thread-safe; one short lock, under which nothing else is called. In a forked child,
///          where a thread of the parent may have it, the functions that destructors call do
///          nothing.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a lock and a look over the links that have the slot; the end of a link, one over all
///          slots.
class HoldLedger {
 public:
  /// All shares are parts of `cap_bytes`.
  explicit HoldLedger(std::uint64_t cap_bytes) : cap_bytes_(cap_bytes) {}

  // The owner
  /// Begins a use of the slot, with the owner's hold. All slots of a segment have one size.
  void begin(SlotId id, std::uint64_t slot_bytes);
  /// True: the slot is free.
  [[nodiscard]] bool drop_owner(SlotId id);
  /// Forgets a segment whose slots will not be used again. Precondition: all are free.
  void forget(std::uint32_t segment);

  // Links. Each has a number that is never used again.
  using LinkNumber = SlotUse::LinkNumber;
  enum class Reads : std::uint8_t { in_place, over_socket };
  /// `places` are reserved in its return ring. `name` is for errors.
  [[nodiscard]] LinkNumber add_link(std::string name, std::uint32_t places, Reads reads);
  enum class Window : std::uint8_t { open, closed, beyond_share };
  /// Adds a hold of this link, for a caller that has a share of the owner's, before the slot is
  /// shown to the link. `closed`: the link has ended. `beyond_share`: it has as many holds as
  /// places, or `share_bytes` and two slots of this size, or all links together leave the owner
  /// fewer than kOwnersSlots of this size.
  [[nodiscard]] Window give(LinkNumber link, SlotId id, std::uint64_t share_bytes);
  static constexpr std::uint64_t kWholeShare = ~std::uint64_t{0};  ///< half of the cap
  static constexpr std::uint64_t kOwnersSlots = 2;

  enum class Left : std::uint8_t {
    holds,   ///< the slot has others
    none,    ///< the slot is free
    as_was,  ///< the ledger knows no such hold
  };
  /// Ends a hold whose slot could not be shown after all.
  [[nodiscard]] Left take_back(LinkNumber link, SlotId id);
  /// Ends a hold that the link's return ring names. An unknown return is counted.
  [[nodiscard]] Left take_return(LinkNumber link, SlotId id);
  /// Ends a link. Proved: its holds end, and the slots that become free are returned. Not proved:
  /// they are in quarantine; the proof may arrive later.
  [[nodiscard]] std::vector<SlotId> end_link(LinkNumber link, Death death);
  /// Ends a link in order: it gets no further holds, and its present ones are returned one by one.
  void retire_link(LinkNumber link);
  [[nodiscard]] std::uint64_t holds_of(LinkNumber link) const;

  /// Slots that readers over sockets hold, each once [bytes]. No lock: each publish asks, even if
  /// nobody reads over sockets.
  [[nodiscard]] std::uint64_t sending_bytes() const noexcept { return sending_bytes_.load(); }
  [[nodiscard]] HoldStats stats() const;
  [[nodiscard]] std::vector<PoolHolder> holders() const;
  /// Names the link that holds most, for errors.
  [[nodiscard]] std::string most_held() const;

 private:
  enum class Standing : std::uint8_t { live, retired, quarantined };
  struct Reader {
    std::string name;
    std::uint32_t places;
    Reads reads;
    std::uint32_t holds = 0;
    std::uint64_t bytes = 0;  // of slots, each once
    Standing standing = Standing::live;
  };
  struct Segment {
    std::uint64_t slot_bytes = 0;
    std::vector<SlotUse> uses;
  };

  [[nodiscard]] SlotUse* find(SlotId id) TENDON_REQUIRES(mutex_);
  [[nodiscard]] std::uint64_t bytes_of(SlotId id) const TENDON_REQUIRES(mutex_);
  [[nodiscard]] Left end_hold(LinkNumber link, SlotId id) TENDON_REQUIRES(mutex_);

  const std::uint64_t cap_bytes_;
  const std::uint32_t process_ = process_number();
  mutable Mutex mutex_;
  std::map<std::uint32_t, Segment> segments_ TENDON_GUARDED_BY(mutex_);  // by number
  std::map<LinkNumber, Reader> readers_ TENDON_GUARDED_BY(mutex_);
  std::uint64_t held_bytes_ TENDON_GUARDED_BY(mutex_) = 0;  // of slots that links have, each once
  std::atomic<std::uint64_t> sending_bytes_{0};             // changed under the lock
  LinkNumber last_link_ TENDON_GUARDED_BY(mutex_) = 0;
  std::uint64_t ignored_returns_ TENDON_GUARDED_BY(mutex_) = 0;
};

}  // namespace tendon::v0::detail
