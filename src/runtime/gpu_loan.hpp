// SPDX-License-Identifier: Apache-2.0
// Loans whose memory lies on a GPU: slots of a Context's pool for peers, and waits for room there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>

#include "cuda/loaned_device_slot.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// A Context's pool on a GPU that peers read, as seen by a call that waits for room in it.
struct RoomOnGpu {
  const std::shared_ptr<cuda::Gpu>& gpu;
  ContextCore& context;
  Link* link;                            ///< as for ContextCore::wait()
  std::function<Result<void>()> usable;  ///< whether the call may continue
};

/// Waits for returns of peers. It also returns after a moment, because the device thread, which
/// ends the owner's holds, signals nobody. Errors: that of `usable`.
[[nodiscard]] Result<void> wait_for_room(const RoomOnGpu& room, Deadline deadline);

/// Takes a slot that the program fills on `stream`. Waits until one is free. Errors: those of the
/// pool and of `usable`; invalid_argument for a stream of another context, or one that is being
/// captured. `where`: for errors, a literal.
[[nodiscard]] Result<std::shared_ptr<cuda::LoanedDeviceSlot>> take_gpu_loan(
    const RoomOnGpu& room, void* stream, std::uint64_t size_bytes, Deadline deadline,
    std::string_view where);

}  // namespace tendon::v0::detail
