// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <tendon/core/result.hpp>

#include "cuda/device_pool.hpp"
#include "transport/link.hpp"
#include "transport/message.hpp"
#include "transport/shm/device_holds.hpp"
#include "transport/shm/devices_out.hpp"

namespace tendon::v0::detail {

/// Leaves on a GPU that are in their slot already, for many peers.
struct LeavesOnGpu {
  std::shared_ptr<cuda::DeviceSlot> slot;  ///< null: the message has none
  std::uint64_t size_bytes = 0;
};

/// Whether this peer may see leaves of that GPU in their slot. `unknown`: it has not answered.
[[nodiscard]] DevicesOut::Way way_of(Link& link, const cuda::Uuid& gpu);
/// The same, but asks a peer that has not answered, or may have used CUDA since it refused.
/// `staged` if its answer is not worth waiting for.
[[nodiscard]] DevicesOut::Way ask_way(Link& link, const cuda::DeviceSlot& slot);
/// Notes that its answer was awaited. If it has not arrived, it is not worth waiting for any more.
void note_late(Link& link, const cuda::DeviceSlot& slot);
/// True if the peer may hold this slot, beside its other slots. Precondition: way_of() is direct.
[[nodiscard]] bool has_share(Link& link, const cuda::DeviceSlot& slot);

/// The leaves of one message as one peer is shown them, and its hold of their slot.
///
/// Owns:    a share of the slot; the hold, until the message is placed.
/// Threads: one at a time.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    make(): the locks of the ledger.
class DirectShow {
 public:
  enum class Made : std::uint8_t {
    yes,
    later,         ///< the socket is full
    beyond_share,  ///< the peer has used its share of the pool, or can read no further segment
  };
  DirectShow() = default;
  /// Precondition: way_of() is direct.
  [[nodiscard]] Result<Made> make(Link& link, const LeavesOnGpu& leaves);
  void describe(SendOp& op) const noexcept {
    op.device_part = std::as_bytes(std::span(&part_, 1));
    op.device_hold = hold_.get();
  }
  [[nodiscard]] bool is_made() const noexcept { return hold_ != nullptr; }
  void reset() noexcept {
    hold_ = nullptr;
    slot_ = nullptr;
  }

 private:
  std::shared_ptr<cuda::DeviceSlot> slot_;
  std::unique_ptr<DeviceHold> hold_;
  DevicePart part_;
};

}  // namespace tendon::v0::detail
