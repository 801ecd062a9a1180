// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/sample_delivery.hpp"

#include <utility>

#include "channel/staging.hpp"
#include "cuda/gpus.hpp"
#include "tensor/on_cpu.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kHere = "subscriber.recv";

}  // namespace

Result<Sample> receive_to(SubscriberCore& subscriber, const DeviceTarget& target,
                          Deadline deadline) {
  TENDON_CHECK(subscriber.context()->usable(kHere));
  TENDON_TRY(gpu, wanted_gpu(target.device, kHere, deadline));
  TENDON_TRY(taken, subscriber.recv(deadline));
  Sample& sample = taken.sample;
  const Placement* const placement = target.device ? nullptr : taken.placement.get();
  if (!sample.tensors || (!target.device && placement == nullptr)) return std::move(sample);
  const auto deliver = [&]() -> Result<void> {
    // A sample that was given back may lie on a GPU.
    if (gpu == nullptr && placement == nullptr) return check_on_cpu(*sample.tensors, kHere);
    if (gpu != nullptr && lies_on(*sample.tensors, gpu->context()->device())) return {};
    if (gpu == nullptr) {
      TENDON_TRY(found, cuda::find_process_gpu(placement->gpu, deadline));
      gpu = std::move(found);
    }
    TENDON_TRY(there, copy_to_gpu(*sample.tensors,
                                  {.gpu = gpu,
                                   .pool = subscriber.context()->memory().devices->of(gpu),
                                   .stream = static_cast<cuda::StreamHandle>(target.stream),
                                   .placement = placement},
                                  kHere, deadline));
    subscriber.count_to_gpu(bytes_on_gpu(*there.schema(), placement));
    sample.tensors = std::move(there);
    return {};
  };
  if (auto delivered = deliver(); !delivered) {
    subscriber.put_back(std::move(taken), SubscriberCore::Place::before_equals);
    return std::move(delivered).error();
  }
  return std::move(sample);
}

}  // namespace tendon::v0::detail
