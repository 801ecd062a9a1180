// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cuda/slot_sizes.hpp"
#include "memory/slot.hpp"

namespace tendon::v0::detail::cuda {

/// The free slots of a pool on a GPU, and its idle segments: only names and numbers.
///
/// Owns:    no memory of the GPU.
/// Threads: under one lock of its owner.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a look over the segments.
class SlotTable {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr std::uint32_t kMostNumbers = std::uint32_t{1} << 24;
  /// Segments are numbered from `first_segment` on, at most `numbers` of them in its life. Neither
  /// a number nor the generation of a slot is used again.
  SlotTable(std::uint32_t first_segment, std::uint64_t cap_bytes,
            std::uint32_t numbers = kMostNumbers)
      : next_number_(first_segment), end_number_(first_segment + numbers), cap_bytes_(cap_bytes) {}

  struct Place {
    SlotId id;
    std::uint64_t offset_bytes = 0;  ///< in its segment
  };
  /// Takes a free slot of this size; empty: there is none.
  [[nodiscard]] std::optional<Place> take(std::uint64_t slot_bytes);
  /// Ends a use. Precondition: take() returned it, once for each use.
  void free(SlotId id, TimePoint now);

  /// Reserves room below the cap for a segment of these slots, until add() or cancel(); returns its
  /// number. Empty: all is in use. Idle segments in the way are removed, the longest idle first,
  /// and listed in `removed`.
  [[nodiscard]] std::optional<std::uint32_t> reserve(std::uint64_t slot_bytes,
                                                     std::vector<std::uint32_t>& removed);
  /// Adds the reserved segment: its slots are free.
  void add(std::uint32_t segment, TimePoint now);
  /// Cancels the reservation.
  void cancel(std::uint32_t segment);

  /// Removes segments that have been idle since `before` or longer.
  [[nodiscard]] std::vector<std::uint32_t> remove_idle(TimePoint before);
  /// The time since when the longest idle one is idle; empty: none is.
  [[nodiscard]] std::optional<TimePoint> idle_since() const;

  /// Bytes of all segments, reserved ones too.
  [[nodiscard]] std::uint64_t resident_bytes() const noexcept { return resident_bytes_; }
  [[nodiscard]] std::uint64_t used_bytes() const noexcept { return used_bytes_; }
  [[nodiscard]] std::uint64_t segment_bytes(std::uint64_t slot_bytes) const noexcept {
    return segment_bytes_for(slot_bytes, cap_bytes_);
  }

 private:
  struct Segment {
    std::uint64_t slot_bytes = 0;
    std::vector<std::uint32_t> free;      // the last one is next
    std::size_t slot_count = 0;           // none before add()
    std::optional<TimePoint> idle_since;  // while all are free
  };
  using Segments = std::map<std::uint32_t, Segment>;
  [[nodiscard]] Segments::iterator longest_idle();
  void remove(Segments::iterator segment);

  std::uint32_t next_number_;
  const std::uint32_t end_number_;
  const std::uint64_t cap_bytes_;
  Segments segments_;
  std::uint64_t generation_ = 0;  // the last one assigned
  std::uint64_t resident_bytes_ = 0;
  std::uint64_t used_bytes_ = 0;
};

}  // namespace tendon::v0::detail::cuda
