// SPDX-License-Identifier: Apache-2.0
#include "pipe/gpu_source.hpp"

#include "channel/gpu_offer.hpp"
#include "channel/staging.hpp"
#include "cuda/gpus.hpp"

namespace tendon::v0::detail {

Result<GpuSource> gpu_source(const TensorDict& batch, Link& link, Deadline deadline) {
  TENDON_TRY(device, gpu_of(batch, "pipe.send"));
  TENDON_TRY(gpus, cuda::process_gpus());
  TENDON_TRY(gpu, gpus->use(device.value_or(cpu()).index, deadline));
  const cuda::Uuid& uuid = gpu->context()->uuid();
  TENDON_TRY(number, offer_gpu(link, uuid, "pipe.send"));
  return GpuSource{std::move(gpu), number, placement_of(batch, uuid, number)};
}

}  // namespace tendon::v0::detail
