// SPDX-License-Identifier: Apache-2.0
#include <tendon/runtime/gpu_pool.hpp>

#include "cuda/gpus.hpp"
#include "runtime/gpu_loan.hpp"

namespace tendon::v0 {

std::string GpuPoolSummary::to_string() const {
  std::string text = "pool on " + tendon::to_string(device) + ": " + std::to_string(used_bytes) +
                     " bytes in use, " + std::to_string(resident_bytes) + " of " +
                     std::to_string(cap_bytes) + " bytes resident in " +
                     std::to_string(segment_count) + " segments";
  for (const PoolHolder& holder : holders) {
    text += ", " + holder.name + " holds " + std::to_string(holder.count) + " slots of " +
            std::to_string(holder.bytes) + " bytes";
  }
  return text;
}

Result<Storage> GpuPool::allocate(std::uint64_t size_bytes, Deadline deadline, const OnStream& on) {
  static constexpr std::string_view kHere = "pool.allocate";
  const auto context = context_.lock();
  if (context == nullptr)
    return Error{ErrorCode::context_closed, kHere, "the Context of this pool has gone"};
  const detail::RoomOnGpu room{.gpu = gpu_, .context = *context, .link = nullptr, .usable = [&] {
                                 return context->usable(kHere);
                               }};
  TENDON_TRY(slot, detail::take_gpu_loan(room, on.stream, size_bytes, deadline, kHere));
  return detail::cuda::LoanedDeviceSlot::storage(slot, size_bytes);
}

GpuPoolSummary GpuPool::summary() const {
  // In a forked child, a thread of the parent may hold a lock.
  if (!slots_->context().is_of_this_process()) return {.device = slots_->context().device()};
  // Returns that were not yet taken in are no holds any more.
  if (const auto context = context_.lock(); context != nullptr)
    (void)context->links().collect_returns(detail::LinkTable::Of::all);
  const auto stats = slots_->stats();
  return {.device = slots_->context().device(),
          .cap_bytes = stats.cap_bytes,
          .resident_bytes = stats.resident_bytes,
          .segment_count = stats.segments,
          .used_bytes = stats.used_bytes,
          .holders = slots_->holders()};
}

Result<GpuPool> Context::pool(Device device, Deadline deadline) const {
  constexpr std::string_view kHere = "context.pool";
  TENDON_CHECK(core_->usable(kHere));
  if (device.kind != DeviceKind::cuda) {
    return Error{ErrorCode::unsupported_device, kHere,
                 "the device is " + to_string(device) +
                     "; legal is cuda: pool() without a device is that of host memory"};
  }
  TENDON_TRY(gpus, detail::cuda::process_gpus());
  TENDON_TRY(gpu, gpus->use(device.index, deadline));
  auto slots = core_->memory().passed->of(gpu);
  return GpuPool(core_, std::move(gpu), std::move(slots));
}

}  // namespace tendon::v0
