// SPDX-License-Identifier: Apache-2.0
#include "pipe/direct_fill.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "channel/on_gpu.hpp"
#include "core/failpoint.hpp"
#include "cuda/gpus.hpp"
#include "cuda/slot_sizes.hpp"
#include "pipe/gpu_loan.hpp"
#include "transport/shared_memory_link.hpp"
#include "transport/shm/devices_out.hpp"

namespace tendon::v0::detail {
namespace {

using Way = DevicesOut::Way;

bool has_no_room(const Error& error) {
  return error.code == ErrorCode::resource_exhausted || error.code == ErrorCode::message_too_large;
}

/// The owner of a pool keeps kOwnersSlots of each size: no link ever holds one as large as this.
bool is_too_large(const DirectSource& source) {
  const std::uint64_t cap_bytes = source.context->options().device_cap_bytes;
  const std::uint64_t size_bytes = source.layout.gpu_bytes;
  return size_bytes > cap_bytes ||
         cuda::slot_bytes_for(size_bytes) > cap_bytes / (1 + HoldLedger::kOwnersSlots);
}

/// The peer may use CUDA later. What fails here is tried again with the next message.
void ask_again(const DirectSource& source, SharedMemoryLink& memory, cuda::DevicePool& pool,
               Deadline deadline) {
  const std::uint32_t number = source.gpu.number;
  if (!memory.devices_out().lacks_question(number)) return;
  const auto slot = pool.acquire(1, deadline);
  if (!slot) return;
  const auto shared = memory.devices_out().share(number, **slot);
  if (shared && *shared == Sent::done)
    memory.devices_out().keep_question(number, (*slot)->segment());
}

/// Has the peer said how it takes leaves of this GPU? Its answer follows the first segment.
Result<Way> await_way(const DirectSource& source, SharedMemoryLink& memory,
                      const cuda::DeviceSlot& slot, Deadline deadline) {
  std::optional<Error> error;
  Way way = Way::unknown;
  const bool may_wait = !deadline.is_poll() && memory.devices_out().is_answered_soon();
  const auto look = [&] {
    auto shared = memory.devices_out().share(source.gpu.number, slot);
    if (!shared) {
      error = std::move(shared).error();
      return true;
    }
    if (*shared == Sent::later) return false;
    way = memory.devices_out().way(source.gpu.number);
    return way != Way::unknown;
  };
  if (!look() && may_wait) {
    (void)source.context->wait(&source.link, deadline, [&] {
      if (!source.context->unusable()) source.context->poll_link(source.link);
      if (auto still = source.usable(); !still) error = std::move(still).error();
      return error || look();
    });
  }
  if (error && has_no_room(*error)) return Way::staged;
  if (error) return *std::move(error);
  if (way != Way::unknown || !may_wait) return way;
  return Error{ErrorCode::timeout, "pipe.send",
               source.link.peer_name() +
                   " had not said before the deadline whether it can read memory of " +
                   to_string(source.gpu.gpu->context()->device()) + "; nothing was delivered"};
}

Result<cuda::StreamWork> enqueue(const DirectSource& source,
                                 const std::shared_ptr<cuda::DeviceSlot>& slot,
                                 DeviceFill::From from, Deadline deadline) {
  TENDON_TRY(work, cuda::StreamWork::begin(source.gpu.gpu, source.stream, "pipe.send"));
  if (from == DeviceFill::From::loan) {
    work.keep(slot);
    return work;
  }
  work.keep(std::make_shared<const TensorDict>(source.batch));
  work.keep(slot);  // also where one copy is enqueued and the next fails
  TENDON_CHECK(pack_on_gpu(source.batch, source.layout, slot->address(), work, deadline));
  return work;
}

}  // namespace

Result<std::shared_ptr<DeviceFill>> direct_fill(const DirectSource& source, Deadline deadline) {
  const std::shared_ptr<DeviceFill> staged;
  SharedMemoryLink* const memory = source.link.shared_memory();
  const DevicePath path = source.context->options().device_path;
  if (memory == nullptr || path == DevicePath::staged) return staged;
  DevicesOut& devices = memory->devices_out();
  const std::uint32_t number = source.gpu.number;
  const auto pool = source.context->memory().passed->of(source.gpu.gpu);
  if (devices.way(number) == Way::staged) {
    ask_again(source, *memory, *pool, deadline);
    return staged;
  }
  if (is_too_large(source)) return staged;
  (void)source.link.collect_returns();
  const auto loaned = loaned_slot_of(source.batch, source.layout, *pool);
  const auto from = loaned == nullptr ? DeviceFill::From::copies : DeviceFill::From::loan;
  auto slot = loaned != nullptr
                  ? Result<std::shared_ptr<cuda::DeviceSlot>>(loaned)
                  : pool->acquire(std::max<std::uint64_t>(source.layout.gpu_bytes, 1), deadline);
  if (!slot) {
    const bool is_late = slot.error().code == ErrorCode::timeout && deadline.is_poll();
    if (is_late || has_no_room(slot.error())) return staged;
    return std::move(slot).error();
  }
  TENDON_TRY(way, await_way(source, *memory, **slot, deadline));
  if (way != Way::direct) return staged;
  auto words = devices.words(number, source.gpu.gpu, deadline);
  if (!words && devices.way(number) != Way::staged) return std::move(words).error();
  if (!words || *words == nullptr) return staged;
  TENDON_TRY(hold, devices.hold(**slot));
  if (hold == nullptr) return staged;
  TENDON_TRY(work, enqueue(source, *slot, from, deadline));
  (void)TENDON_FAILPOINT("pipe.gpu.filled");
  const auto wake = [weak = std::weak_ptr(source.context)] {
    if (const auto core = weak.lock()) core->wake_for_work();
  };
  return std::make_shared<DeviceFill>(
      DeviceFill::Parts{source.gpu.gpu, std::move(work), *std::move(slot), std::move(hold),
                        *std::move(words), wake, from, source.loan},
      number, source.layout.gpu_bytes);
}

std::vector<PathOfDevice> paths_of_devices(const Link& link, DevicePath path) {
  std::vector<PathOfDevice> paths;
  SharedMemoryLink* const memory = link.shared_memory();
  const auto offered = link.device_offers.own();
  for (std::uint32_t number = 0; number < offered.size(); ++number) {
    const cuda::Uuid& uuid = offered[number];
    const auto gpu = cuda::find_process_gpu(uuid, Deadline::now());
    if (!gpu) continue;  // in a forked child
    PathOfDevice it;
    it.device = (*gpu)->context()->device();
    it.uuid = uuid_text(uuid);
    it.peer = link.peer_name();
    if (memory == nullptr)
      it.reason = "the path is " + link.path().to_string();
    else if (path == DevicePath::staged)
      it.reason = "ContextOptions::device_path is staged";
    else if (memory->devices_out().way(number) == Way::direct)
      it.is_direct = true;
    else
      it.reason = memory->devices_out().why_staged(number);
    paths.push_back(std::move(it));
  }
  return paths;
}

}  // namespace tendon::v0::detail
