// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/result.hpp>

#include "memory/segment.hpp"
#include "memory/slot_pool.hpp"
#include "transport/message.hpp"

namespace tendon::v0::detail {

class DevicesOut;

/// What only a link through shared memory can do: Link::shared_memory() has it.
///
/// Threads: thread-safe.
/// Errors:  as Link.
/// Blocks:  never.
class SharedMemoryLink {
 public:
  virtual ~SharedMemoryLink() = default;
  /// Lets the peer's sink of `pipe`, which must be attached there, read `segment`
  /// (Writers::maker_only). `later`: the socket is full, try again.
  [[nodiscard]] virtual Result<Sent> publish_segment(std::uint32_t pipe, std::uint32_t id,
                                                     const Segment& segment) = 0;
  /// Does the peer take holds of slots of the publish pool? Without, a message is copied for it.
  [[nodiscard]] virtual bool takes_holds() const noexcept = 0;
  /// `info` is a segment of the publish pool, for a peer that takes holds. As above.
  [[nodiscard]] virtual Result<Sent> share_segment(const SegmentInfo& info) = 0;
  /// A flag in a published segment has moved: wakes the peer if it sleeps and waits for flags.
  virtual void ring_for_flags() noexcept = 0;
  /// How the tensors of this side's GPUs travel to the peer.
  [[nodiscard]] virtual DevicesOut& devices_out() noexcept = 0;
  /// Ends the peer's process, by the descriptor that proves its death. False: it cannot.
  [[nodiscard]] virtual bool kill_peer() noexcept = 0;
};

}  // namespace tendon::v0::detail
