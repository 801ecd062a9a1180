// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/gpu_samples.hpp"

#include <utility>

#include "channel/gpu_wait.hpp"
#include "channel/not_direct.hpp"
#include "channel/staging.hpp"
#include "channel/to_host.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kHere = "publisher.publish";

}  // namespace

Result<std::shared_ptr<KeptSample>> GpuSamples::copy(const TensorDict& sample, const How& how) {
  TENDON_TRY(device, gpu_of(sample, kHere));
  if (context_->options().device_path == DevicePath::direct_only)
    return not_direct(kHere, device.value_or(cpu()), key_, "samples are staged");
  TENDON_TRY(gpu, wanted_gpu(device, kHere, how.deadline));
  // First: one that is being captured is refused before a slot is taken for it.
  TENDON_TRY(work,
             cuda::StreamWork::begin(gpu, static_cast<cuda::StreamHandle>(how.stream), kHere));
  auto kept = std::make_shared<KeptSample>();
  TENDON_CHECK(kept->make_room(sample, sizeof(SampleHeader), how.acquire));
  SharedMessage& message = kept->message;
  message.placement = placement_of(sample, gpu->context()->uuid(), 0);
  const std::uint64_t size = message.descriptor.payload_bytes;
  const Storage room(kept, kept->memory().data(), size, Access::read_write);
  const auto wait_here = [&](cuda::StreamWork& of) { return wait(of, how); };
  auto copied = copy_to_host(sample, room, std::move(work), *context_->memory().devices->of(gpu),
                             how.deadline, wait_here);
  if (!copied) {
    if (copied.error().code != ErrorCode::timeout) return std::move(copied).error();
    return Error{ErrorCode::timeout, kHere,
                 "the GPU had not copied " + std::to_string(size) + " bytes for " + key_ +
                     " before the deadline: its stream has work to do first; nothing was "
                     "published"};
  }
  count_.fetch_add(1, std::memory_order_relaxed);
  bytes_.fetch_add(bytes_on_gpu(*message.schema, message.placement.get()),
                   std::memory_order_relaxed);
  return kept;
}

Result<void> GpuSamples::wait(cuda::StreamWork& work, const How& how) const {
  for (;;) {
    const Deadline slice = how.go_on ? earlier(how.deadline, kGoOnSlice) : how.deadline;
    auto waited = wait_for_gpu(work, context_, nullptr, slice, how.usable);
    const bool is_late = !waited && waited.error().code == ErrorCode::timeout;
    if (!is_late || slice.time_point() == how.deadline.time_point()) return waited;
    if (!how.go_on()) {
      return Error{ErrorCode::cancelled, kHere,
                   "the program ended the wait for the GPU; nothing was published on " + key_};
    }
  }
}

}  // namespace tendon::v0::detail
