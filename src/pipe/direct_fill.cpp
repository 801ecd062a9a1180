// SPDX-License-Identifier: Apache-2.0
#include "pipe/direct_fill.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "channel/loaned_batch.hpp"
#include "channel/not_direct.hpp"
#include "channel/on_gpu.hpp"
#include "core/failpoint.hpp"
#include "cuda/gpus.hpp"
#include "cuda/slot_sizes.hpp"
#include "runtime/gpu_loan.hpp"
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

/// Empty: they are direct.
std::string why_staged(const Link& link, std::uint32_t number, DevicePath path) {
  SharedMemoryLink* const memory = link.shared_memory();
  if (memory == nullptr) return "the path is " + link.path().to_string();
  if (path == DevicePath::staged) return "ContextOptions::device_path is staged";
  if (memory->devices_out().way(number) == Way::direct) return {};
  return memory->devices_out().why_staged(number);
}

bool may_be_direct(const DirectSource& source) {
  return source.link.shared_memory() != nullptr &&
         source.context->options().device_path != DevicePath::staged;
}

Error why_not(const DirectSource& source) {
  return not_direct(
      "pipe.send", source.gpu.gpu->context()->device(), source.link.peer_name(),
      why_staged(source.link, source.gpu.number, source.context->options().device_path));
}

Error too_large(const DirectSource& source) {
  return Error{ErrorCode::message_too_large, "pipe.send",
               std::to_string(source.layout.gpu_bytes) + " bytes on " +
                   to_string(source.gpu.gpu->context()->device()) +
                   " are more than a third of the pool that peers read, which has at most " +
                   std::to_string(source.context->options().device_cap_bytes) +
                   " (ContextOptions::device_cap_bytes)"};
}

Error beyond_share(const DirectSource& source) {
  return Error{ErrorCode::resource_exhausted, "pipe.send",
               source.link.peer_name() + " holds its share of the pool on " +
                   to_string(source.gpu.gpu->context()->device()) +
                   ", which is half of ContextOptions::device_cap_bytes; nothing was delivered"};
}

Error no_answer(const DirectSource& source) {
  return Error{ErrorCode::timeout, "pipe.send",
               source.link.peer_name() +
                   " had not said before the deadline whether it can read memory of " +
                   to_string(source.gpu.gpu->context()->device()) + "; nothing was delivered"};
}

/// Waits until the peer has said how it takes leaves of this GPU, which follows the first segment.
Result<Way> await_way(const DirectSource& source, SharedMemoryLink& memory,
                      const cuda::DeviceSlot& slot, Deadline deadline) {
  std::optional<Error> error;
  Way way = Way::unknown;
  const bool may_wait =
      !deadline.is_poll() && (memory.devices_out().is_answered_soon() || source.is_direct_only());
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
  if (error) return *std::move(error);
  if (way != Way::unknown || !may_wait) return way;
  return no_answer(source);
}

Error not_let_past(const DirectSource& source) {
  return Error{ErrorCode::timeout, "pipe.send",
               "an asynchronous send to " + source.link.peer_name() +
                   " that is in front of this one waits for room on " +
                   to_string(source.gpu.gpu->context()->device()) +
                   ", for its stream, or for the peer's answer; nothing was delivered"};
}

// A send that waits for room needs the memory that this one would take, and this one would wait for
// it.
Result<void> let_held_go_first(const DirectSource& source, Deadline deadline) {
  if (!source.is_behind_held()) return {};
  if (auto why = why_never_direct(source)) return *std::move(why);
  std::optional<Error> error;
  const bool is_next = source.context->wait(&source.link, deadline, [&] {
    if (!source.context->unusable()) source.context->poll_link(source.link);
    if (auto still = source.usable(); !still) error = std::move(still).error();
    return error || !source.is_behind_held();
  });
  if (error) return *std::move(error);
  if (is_next) return {};
  return not_let_past(source);
}

Result<cuda::StreamWork> enqueue(const DirectSource& source,
                                 const std::shared_ptr<cuda::DeviceSlot>& slot,
                                 DeviceFill::From from, Deadline deadline) {
  TENDON_TRY(work, cuda::StreamWork::begin(source.gpu.gpu, source.stream, "pipe.send"));
  if (from == DeviceFill::From::loan) {
    work.follow_stream();  // the program fills it there
    work.keep(slot);
    return work;
  }
  work.keep(std::make_shared<const TensorDict>(source.batch));
  work.keep(slot);  // also if one copy is enqueued and the next fails
  TENDON_CHECK(pack_on_gpu(source.batch, source.layout, slot->address(), work, deadline));
  return work;
}

}  // namespace

bool DirectSource::is_direct_only() const noexcept {
  return context->options().device_path == DevicePath::direct_only;
}

std::optional<Error> why_never_direct(const DirectSource& source) {
  if (!may_be_direct(source) ||
      source.link.shared_memory()->devices_out().way(source.gpu.number) == Way::staged)
    return why_not(source);
  if (is_too_large(source)) return too_large(source);
  return std::nullopt;
}

Result<DirectTry> try_direct(const DirectSource& source, Deadline deadline) {
  SharedMemoryLink* const memory = source.link.shared_memory();
  const std::uint32_t number = source.gpu.number;
  if (!may_be_direct(source)) return DirectTry{{}, why_not(source)};
  DevicesOut& devices = memory->devices_out();
  const auto pool = source.context->memory().passed->of(source.gpu.gpu);
  if (devices.way(number) == Way::staged) {
    devices.ask_again(number, *pool, deadline);
    return DirectTry{{}, why_not(source)};
  }
  if (is_too_large(source)) return DirectTry{{}, too_large(source)};
  (void)source.link.collect_returns();
  const auto loaned = loaned_slot_of(source.batch, source.layout, *pool);
  const auto from = loaned == nullptr ? DeviceFill::From::copies : DeviceFill::From::loan;
  auto slot = loaned != nullptr
                  ? Result<std::shared_ptr<cuda::DeviceSlot>>(loaned)
                  : pool->acquire(std::max<std::uint64_t>(source.layout.gpu_bytes, 1), deadline);
  if (!slot) {
    const bool is_late = slot.error().code == ErrorCode::timeout && deadline.is_poll();
    if (is_late || has_no_room(slot.error())) return DirectTry{{}, std::move(slot).error()};
    return std::move(slot).error();
  }
  const auto way = await_way(source, *memory, **slot, deadline);
  if (!way && has_no_room(way.error())) return DirectTry{{}, way.error()};
  if (!way) return way.error();
  if (*way == Way::unknown) return DirectTry{{}, no_answer(source)};
  if (*way != Way::direct) return DirectTry{{}, why_not(source)};
  auto words = devices.words(number, source.gpu.gpu, deadline);
  if (!words && devices.way(number) != Way::staged) return std::move(words).error();
  if (!words) return DirectTry{{}, why_not(source)};
  if (*words == nullptr) return DirectTry{{}, no_answer(source)};
  TENDON_TRY(hold, devices.hold(**slot));
  if (hold == nullptr) return DirectTry{{}, beyond_share(source)};
  TENDON_TRY(work, enqueue(source, *slot, from, deadline));
  (void)TENDON_FAILPOINT("pipe.gpu.filled");
  const auto wake = [weak = std::weak_ptr(source.context)] {
    if (const auto core = weak.lock()) core->wake_for_work();
  };
  return DirectTry{std::make_shared<DeviceFill>(
                       DeviceFill::Parts{source.gpu.gpu, std::move(work), *std::move(slot),
                                         std::move(hold), *std::move(words), wake, from},
                       number, source.layout.gpu_bytes),
                   {}};
}

Result<std::shared_ptr<DeviceFill>> direct_fill(const DirectSource& source, Deadline deadline) {
  for (;;) {
    if (source.is_direct_only()) TENDON_CHECK(let_held_go_first(source, deadline));
    TENDON_TRY(tried, try_direct(source, deadline));
    if (tried.fill != nullptr || !source.is_direct_only()) return std::move(tried.fill);
    if (tried.why->code != ErrorCode::resource_exhausted || deadline.has_passed())
      return *std::move(tried.why);
    TENDON_CHECK(wait_for_room({.gpu = source.gpu.gpu,
                                .context = *source.context,
                                .link = &source.link,
                                .usable = source.usable},
                               deadline));
  }
}

std::vector<PathOfDevice> paths_of_devices(const Link& link, DevicePath path) {
  std::vector<PathOfDevice> paths;
  const auto offered = link.device_offers.own();
  for (std::uint32_t number = 0; number < offered.size(); ++number) {
    const cuda::Uuid& uuid = offered[number];
    const auto gpu = cuda::find_process_gpu(uuid, Deadline::now());
    if (!gpu) continue;  // in a forked child
    PathOfDevice it;
    it.device = (*gpu)->context()->device();
    it.uuid = uuid_text(uuid);
    it.peer = link.peer_name();
    it.reason = why_staged(link, number, path);
    it.is_direct = it.reason.empty();
    paths.push_back(std::move(it));
  }
  return paths;
}

}  // namespace tendon::v0::detail
