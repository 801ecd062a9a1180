// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu_loan.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "cuda/stream_work.hpp"
#include "runtime/waits_for.hpp"

namespace tendon::v0::detail {

Result<void> wait_for_room(const RoomOnGpu& room, Deadline deadline) {
  constexpr std::chrono::milliseconds kSlice{5};
  const auto pool = room.context.memory().passed->of(room.gpu);
  const std::uint64_t used_bytes = pool->stats().used_bytes;
  std::optional<Error> error;
  std::optional<WaitsFor> waits;
  if (room.link != nullptr) waits.emplace(room.context, *room.link, WaitsFor::kReturns);
  (void)room.context.wait(room.link, earlier(deadline, kSlice), [&] {
    if (room.link != nullptr && !room.context.unusable()) room.context.poll_link(*room.link);
    if (auto still = room.usable(); !still) error = std::move(still).error();
    (void)room.context.links().collect_returns(LinkTable::Of::all);
    return error || pool->stats().used_bytes < used_bytes;
  });
  if (error) return *std::move(error);
  return {};
}

Result<std::shared_ptr<cuda::LoanedDeviceSlot>> take_gpu_loan(const RoomOnGpu& room, void* stream,
                                                              std::uint64_t size_bytes,
                                                              Deadline deadline,
                                                              std::string_view where) {
  const auto name = static_cast<cuda::StreamHandle>(stream);
  TENDON_TRY(work, cuda::StreamWork::begin(room.gpu, name, where));
  const auto pool = room.context.memory().passed->of(room.gpu);
  for (;;) {
    TENDON_CHECK(room.usable());
    (void)room.context.links().collect_returns(LinkTable::Of::all);
    // Not called inside a wait, because it may wait for the device thread.
    auto slot = pool->acquire(std::max<std::uint64_t>(size_bytes, 1), deadline);
    if (slot) return cuda::LoanedDeviceSlot::make(room.gpu, *std::move(slot), name);
    if (slot.error().code != ErrorCode::resource_exhausted || deadline.has_passed())
      return std::move(slot).error();
    TENDON_CHECK(wait_for_room(room, deadline));
  }
}

}  // namespace tendon::v0::detail
