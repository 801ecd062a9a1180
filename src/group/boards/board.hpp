// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "group/boards/staging.hpp"
#include "group/operands/fingerprint.hpp"
#include "memory/segment.hpp"

namespace tendon::v0::detail {

/// Memory in which the members of one host show each other their data. Each writes only its own
/// segment, and can map the others' only to read.
///
/// Work proceeds in rounds, counted up from 1 over all operations of an epoch. In each round every
/// member publishes once: a line of 128 bytes and, where that is too small, a slot. A member
/// publishes round t only when it has read all it wants of round t-1. So a member that sees round
/// t-K+1 of all others, with K lines and slots a member, may write over its own of round t-K:
///
///     may_stage(t): all others have published t-K+1
///     stage:        write slot and line t mod K
///     publish(t):   store the line's round, with release
///     arrived(m, t): member m's line t mod K says t, with acquire; then its slot may be read
///     (read), then the next round
///
/// A member can therefore be K-1 rounds behind, which lets a broadcast's root run ahead. Nobody
/// else's memory is ever written: a member that was stopped and resumes can do no harm.
///
/// Owns:    this member's segment, the mappings of the others'.
/// Threads: one at a time.
/// Errors:  protocol_violation for a segment that does not belong to this epoch.
/// Blocks:  never.
/// Cost:    an empty round: one cache line from each other member.
class Board {
 public:
  static constexpr std::uint64_t kRounds = 4;
  static constexpr std::size_t kSmallBytes = 96;
  static constexpr std::uint64_t kSlotBytes = std::uint64_t{256} << 10;

  struct alignas(128) Line {
    std::atomic<std::uint64_t> round{0};
    Fingerprint fingerprint;
    std::array<std::byte, kSmallBytes> small;
  };
  static_assert(sizeof(Line) == 128);

  /// Reserves room for the slots; pages exist when first touched.
  [[nodiscard]] static Result<std::unique_ptr<Board>> create(std::uint64_t group,
                                                             std::uint64_t epoch,
                                                             std::uint32_t members,
                                                             std::uint32_t self,
                                                             std::optional<CopyHint> staging = {});
  [[nodiscard]] const std::shared_ptr<Segment>& segment() const noexcept {
    return segments_[self_];
  }
  /// Maps another member's segment.
  [[nodiscard]] Result<void> attach(std::uint32_t member, std::shared_ptr<Segment> segment);

  /// True if `member`, another one, published round `round`.
  [[nodiscard]] bool arrived(std::uint32_t member, std::uint64_t round) noexcept {
    if (seen_[member] >= round) return true;
    const std::uint64_t now = line(member, round).round.load(std::memory_order_acquire);
    // More than `round` is possible only after a late look.
    if (now < round) return false;
    seen_[member] = now;
    return true;
  }
  /// The first member that has not released the line and slot that `round` needs; this member
  /// itself when all have.
  [[nodiscard]] std::uint32_t holds_back(std::uint64_t round) noexcept {
    if (round < kRounds) return self_;
    for (std::uint32_t member = 0; member < member_count(); ++member)
      if (member != self_ && !arrived(member, round - kRounds + 1)) return member;
    return self_;
  }
  [[nodiscard]] Line& mine(std::uint64_t round) const noexcept { return line(self_, round); }
  [[nodiscard]] MutableBytes my_slot(std::uint64_t round) const noexcept {
    return {slot_data(self_, round), kSlotBytes};
  }
  /// Says that this member will not complete the operation in `round`: from now on its tensors may
  /// change, also under a member that still reads them in place.
  void give_up(std::uint64_t round) const noexcept {
    contents(self_).gave_up_in.store(round, std::memory_order_seq_cst);
  }
  /// True if other members' tensors may have changed already when this member read them, before
  /// this call, in `round` or before. (A reader's half of a sequence lock.)
  [[nodiscard]] bool abandoned(std::uint64_t round) const noexcept {
    std::atomic_thread_fence(std::memory_order_acquire);
    for (std::uint32_t member = 0; member < member_count(); ++member) {
      const std::uint64_t in = contents(member).gave_up_in.load(std::memory_order_relaxed);
      if (in != 0 && in <= round) return true;
    }
    return false;
  }
  void publish(std::uint64_t round) const noexcept {
    mine(round).round.store(round, std::memory_order_release);
  }
  /// Precondition of both: arrived(member, round).
  [[nodiscard]] const Line& theirs(std::uint32_t member, std::uint64_t round) const noexcept {
    return line(member, round);
  }
  [[nodiscard]] const std::byte* slot(std::uint32_t member, std::uint64_t round) const noexcept {
    return slot_data(member, round);
  }

  [[nodiscard]] std::uint32_t member_count() const noexcept {
    return static_cast<std::uint32_t>(segments_.size());
  }
  [[nodiscard]] std::uint32_t self() const noexcept { return self_; }
  /// How the current operation writes to its slots.
  [[nodiscard]] CopyHint hint() const noexcept { return hint_; }
  void set_hint(CopyHint hint) noexcept { hint_ = hint; }
  [[nodiscard]] Staging& staging() noexcept { return staging_; }

 private:
  struct Header {
    std::uint64_t magic = 0;
    std::uint64_t group = 0;
    std::uint64_t epoch = 0;
    std::uint32_t member = 0;
    std::uint32_t member_count = 0;
  };
  struct Contents {
    alignas(128) Header header;
    std::atomic<std::uint64_t> gave_up_in;  // a round; 0: none
    std::array<Line, kRounds> lines;
    alignas(4096) std::array<std::array<std::byte, kSlotBytes>, kRounds> slots;
  };
  static constexpr std::uint64_t kMagic = 0x31454e494c444e54;  // "TNDLINE1" read as little endian

  Board(std::uint32_t members, std::uint32_t self, std::optional<CopyHint> forced)
      : self_(self), segments_(members), seen_(members), staging_(forced) {}
  [[nodiscard]] Contents& contents(std::uint32_t member) const noexcept {
    return *reinterpret_cast<Contents*>(segments_[member]->data());
  }
  [[nodiscard]] Line& line(std::uint32_t member, std::uint64_t round) const noexcept {
    return contents(member).lines[round % kRounds];
  }
  [[nodiscard]] std::byte* slot_data(std::uint32_t member, std::uint64_t round) const noexcept {
    return contents(member).slots[round % kRounds].data();
  }

  const std::uint32_t self_;
  std::vector<std::shared_ptr<Segment>> segments_;
  std::vector<std::uint64_t> seen_;  // the latest round of each
  Staging staging_;
  CopyHint hint_ = CopyHint::cached;
};

}  // namespace tendon::v0::detail
