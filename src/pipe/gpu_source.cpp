// SPDX-License-Identifier: Apache-2.0
#include "pipe/gpu_source.hpp"

#include <string>
#include <tendon/session/limits.hpp>

#include "channel/staging.hpp"
#include "cuda/gpus.hpp"

namespace tendon::v0::detail {
namespace {

Result<std::uint32_t> offer(Link& link, const cuda::Uuid& gpu) {
  if (!link.features().has(Feature::devices)) {
    return Error{ErrorCode::unsupported_device, "pipe.send",
                 "the Tendon of " + link.peer_name() +
                     " is older and takes no tensors on GPUs: copy them to the CPU, or update it"};
  }
  const auto number =
      link.device_offers.number_of(gpu, [&](const Descriptor& word) { link.post(word); });
  if (number) return *number;
  return Error{ErrorCode::unsupported_device, "pipe.send",
               "tensors of more than " + std::to_string(kMaxDevicesPerLink) +
                   " GPUs were sent to " + link.peer_name() + " (kMaxDevicesPerLink)"};
}

}  // namespace

Result<GpuSource> gpu_source(const TensorDict& batch, Link& link, Deadline deadline) {
  TENDON_TRY(device, gpu_of(batch, "pipe.send"));
  TENDON_TRY(gpus, cuda::process_gpus());
  TENDON_TRY(gpu, gpus->use(device.value_or(cpu()).index, deadline));
  const cuda::Uuid& uuid = gpu->context()->uuid();
  TENDON_TRY(number, offer(link, uuid));
  return GpuSource{std::move(gpu), number, placement_of(batch, uuid, number)};
}

}  // namespace tendon::v0::detail
