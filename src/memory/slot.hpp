// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <tendon/core/bytes.hpp>

#include "memory/segment.hpp"

namespace tendon::v0::detail {

/// Names one use of one slot. The generation counts the uses, so that a late word about an earlier
/// use never matches.
struct SlotId {
  std::uint32_t segment = 0;
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
  bool operator==(const SlotId&) const = default;
};

/// A slot taken from a pool: memory of at least the requested size.
struct Slot {
  /// Whether an earlier use left its pages behind.
  enum class Pages : std::uint8_t { touched, untouched };

  SlotId id;
  MutableBytes memory;
  Pages pages = Pages::touched;
};

/// The announcement of a segment to a peer: once, before its first slot.
struct SegmentInfo {
  std::uint32_t id = 0;
  std::uint32_t slot_count = 0;
  std::uint64_t slot_bytes = 0;
  std::shared_ptr<Segment> segment;
};

struct SlotPoolStats {
  std::uint64_t cap_bytes = 0;
  std::uint64_t resident_bytes = 0;  ///< touched slots, whichever side has them
  std::uint64_t loaned_count = 0;    ///< with the user of this process
  std::uint64_t sent_count = 0;      ///< the peer has them
  std::uint64_t sent_bytes = 0;
  std::uint64_t quarantined_count = 0;  ///< the peer is lost but not proved dead
  std::uint64_t quarantined_bytes = 0;
  std::uint64_t ignored_returns = 0;  ///< returns that were not in the ledger
  std::uint64_t segment_count = 0;
};

}  // namespace tendon::v0::detail
