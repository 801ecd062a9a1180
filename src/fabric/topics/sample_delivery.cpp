// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/sample_delivery.hpp"

#include <functional>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "channel/direct_to_host.hpp"
#include "channel/staging.hpp"
#include "cuda/delivered_slot.hpp"
#include "cuda/gpus.hpp"
#include "tensor/on_cpu.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kHere = "subscriber.recv";

Result<TensorDict> copy_to_host_memory(SubscriberCore& subscriber, DirectSample& direct,
                                       Deadline deadline) {
  const DirectMessage& message = direct.message;
  const std::function<Result<void>()> usable = [&] { return subscriber.usable(kHere); };
  TENDON_TRY(copied, direct_to_host(message,
                                    {.context = subscriber.context(),
                                     .where = kHere,
                                     .usable = usable,
                                     .patience = direct.patience},
                                    deadline));
  subscriber.count_copy(DeviceCopyKind::d2h,
                        bytes_on_gpu(*message.schema, message.placement.get()));
  return copied;
}

/// `gpu` is the wanted one; null: in place, or in host memory if `target` says so.
Result<TensorDict> deliver_direct(SubscriberCore& subscriber, DirectSample& direct,
                                  const std::shared_ptr<cuda::Gpu>& gpu, const DeviceTarget& target,
                                  Deadline deadline) {
  const DirectMessage& message = direct.message;
  const auto& there = message.body->gpu();
  const auto stream = static_cast<cuda::StreamHandle>(target.stream);
  const bool is_for_host = target.device && gpu == nullptr;
  const bool is_there = gpu == nullptr || gpu->context()->device() == there->context()->device();
  const bool stays =
      !is_for_host && is_there && (gpu == nullptr || message.placement->is_all_on_gpu());
  if (stays && target.device_mode != RecvMode::copy && direct.views->has_room()) {
    // Another GPU's stream would prove nothing when the batch is dropped.
    TENDON_CHECK(cuda::StreamWork::begin(there, stream, kHere));
    return direct_batch(message, cuda::deliver(there, direct.views->counted(message.body), stream));
  }
  if (target.device_mode == RecvMode::view_only) {
    return Error{
        ErrorCode::no_credit, kHere,
        "a view cannot be lent: " +
            (stays ? "this program holds " + std::to_string(DirectViews::kMost) +
                         " samples of this publisher on the GPU; release some"
                   : "the tensors lie elsewhere, on " + to_string(there->context()->device())) +
            ", or use RecvMode::view_or_copy"};
  }
  if (is_for_host) return copy_to_host_memory(subscriber, direct, deadline);
  const auto& wanted = gpu == nullptr ? there : gpu;
  const Placement* const placement = gpu == nullptr ? message.placement.get() : nullptr;
  // Whether one GPU may read the memory of the other is not checked: the copy uses the host.
  TENDON_TRY(batch, is_there ? direct_batch(message, message.body)
                             : copy_to_host_memory(subscriber, direct, deadline));
  TENDON_TRY(fresh, copy_to_gpu(batch,
                                {.gpu = wanted,
                                 .pool = subscriber.context()->memory().devices->of(wanted),
                                 .stream = stream,
                                 .placement = placement},
                                kHere, deadline));
  subscriber.count_copy(is_there ? DeviceCopyKind::d2d : DeviceCopyKind::h2d,
                        bytes_on_gpu(*message.schema, placement));
  return fresh;
}

bool is_lost(const DirectSample& direct) {
  return direct.message.body->gpu()->context()->loss() != cuda::Status::success;
}

}  // namespace

Result<void> bring_to_host(SubscriberCore& subscriber, NumberedSample& taken, Deadline deadline) {
  if (taken.direct == nullptr) return {};
  TENDON_TRY(here, copy_to_host_memory(subscriber, *taken.direct, deadline));
  taken.sample.tensors = std::move(here);
  taken.direct = nullptr;
  return {};
}

Result<Sample> receive_to(SubscriberCore& subscriber, const DeviceTarget& target,
                          Deadline deadline) {
  TENDON_CHECK(subscriber.context()->usable(kHere));
  TENDON_TRY(gpu, wanted_gpu(target.device, kHere, deadline));
  TENDON_TRY(taken, subscriber.recv(deadline));
  Sample& sample = taken.sample;
  const Placement* const placement = target.device ? nullptr : taken.placement.get();
  if (!sample.tensors || (!target.device && placement == nullptr)) return std::move(sample);
  const auto deliver = [&]() -> Result<void> {
    if (taken.direct != nullptr) {
      TENDON_TRY(delivered, deliver_direct(subscriber, *taken.direct, gpu, target, deadline));
      sample.tensors = std::move(delivered);
      return {};
    }
    if (target.device_mode == RecvMode::view_only && (gpu != nullptr || placement != nullptr)) {
      return Error{ErrorCode::no_credit, kHere,
                   "a view cannot be lent on a GPU: the sample travelled through host memory and "
                   "is copied there; use RecvMode::view_or_copy"};
    }
    // A sample that was put back may lie on a GPU.
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
    subscriber.count_copy(DeviceCopyKind::h2d, bytes_on_gpu(*there.schema(), placement));
    sample.tensors = std::move(there);
    return {};
  };
  if (auto delivered = deliver(); !delivered) {
    if (taken.direct != nullptr && is_lost(*taken.direct)) return std::move(delivered).error();
    subscriber.put_back(std::move(taken), SubscriberCore::Place::before_equals);
    return std::move(delivered).error();
  }
  return std::move(sample);
}

}  // namespace tendon::v0::detail
