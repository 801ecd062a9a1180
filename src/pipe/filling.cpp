// SPDX-License-Identifier: Apache-2.0
#include "pipe/filling.hpp"

#include <utility>

#include "channel/staging.hpp"

namespace tendon::v0::detail {

Filling::Filling(TensorDict batch, Storage room, std::shared_ptr<cuda::Gpu> gpu,
                 std::function<void()> on_over)
    : batch_(std::move(batch)),
      room_(std::move(room)),
      gpu_(std::move(gpu)),
      on_over_(std::move(on_over)) {}

Result<std::shared_ptr<const Filling>> Filling::begin(TensorDict batch, Storage room,
                                                      std::shared_ptr<cuda::Gpu> gpu, void* stream,
                                                      std::function<void()> on_over) {
  TENDON_TRY(work, cuda::StreamWork::begin(gpu, static_cast<cuda::StreamHandle>(stream),
                                           "pipe.send_async"));
  std::shared_ptr<Filling> filling(
      new Filling(std::move(batch), std::move(room), std::move(gpu), std::move(on_over)));
  TENDON_CHECK(work.then([filling](Result<void> ready) {
    if (ready)
      filling->copy();
    else
      filling->finish(std::move(ready));
  }));
  return std::shared_ptr<const Filling>(std::move(filling));
}

void Filling::copy() {
  if (auto enqueued = enqueue(); !enqueued) finish(std::move(enqueued));
}

Result<void> Filling::enqueue() {
  // It names the stream of the device thread here.
  auto* const stream = reinterpret_cast<cuda::StreamHandle>(cuda::kPerThreadStream);
  TENDON_TRY(work, cuda::StreamWork::begin(gpu_, stream, "pipe.send_async"));
  work.keep(std::make_shared<const TensorDict>(batch_));
  TENDON_CHECK(pack_gpu_leaves(batch_, room_, work));
  return work.then(
      [self = shared_from_this()](Result<void> done) { self->finish(std::move(done)); });
}

void Filling::finish(Result<void> result) {
  batch_ = TensorDict();
  room_ = Storage();
  result_ = std::move(result);
  is_over_.store(true, std::memory_order_release);
  on_over_();
}

}  // namespace tendon::v0::detail
