// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "memory/slot_pool.hpp"
#include "session/nonce128.hpp"
#include "transport/descriptor.hpp"
#include "transport/shm/ring.hpp"

namespace tendon::v0::detail {

/// One use of a slot, returned by its receiver.
struct ReturnEntry {
  std::uint32_t segment = 0;
  std::uint32_t slot = 0;
  std::uint64_t generation = 0;
};
static_assert(sizeof(ReturnEntry) == 16);

/// The memory that one side of a shm link makes and both sides map: the rings that it writes, and
/// its words. The other side writes only the two `head` counters. Layout: docs/protocol.md, "Shared
/// memory".
///
/// Nothing in here decides which side may use a slot. No size or offset is read from here: they are
/// constants.
struct ControlBlock {
  static constexpr std::uint64_t kMagic = 0x314b4c424e444e54;  // "TNDNBLK1" read as little endian
  static constexpr std::uint64_t kMessageCount = 1024;
  static constexpr std::uint64_t kReturnCount = SlotPool::kMaxSlots;
  static constexpr std::uint64_t kArenaBytes = 256 * 1024;

  std::uint64_t magic = kMagic;
  Nonce128 nonce{};  ///< sent over the socket too: reading it here proves that the memory is shared
  alignas(128) SharedMemoryPolicy::Word sleeping{0};  ///< SleepWord of the maker
  alignas(128) SharedMemoryPolicy::Word beat{0};      ///< rises while the maker makes progress
  RingCounters<SharedMemoryPolicy> messages;
  RingCounters<SharedMemoryPolicy> returns;
  alignas(128) std::array<Descriptor, kMessageCount> message_entries;
  alignas(128) std::array<ReturnEntry, kReturnCount> return_entries;
  alignas(128) std::array<std::byte, kArenaBytes> arena;  ///< bodies of inline messages
};

}  // namespace tendon::v0::detail
