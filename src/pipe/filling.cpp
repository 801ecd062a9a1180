// SPDX-License-Identifier: Apache-2.0
#include "pipe/filling.hpp"

#include <string_view>
#include <utility>

#include "channel/staging.hpp"
#include "cuda/stream_work.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "pipe.send_async";

}  // namespace

Filling::Filling(TensorDict batch, Storage room, CopiesToHost copies,
                 std::shared_ptr<cuda::Gpu> gpu, std::function<void()> on_over)
    : batch_(std::move(batch)),
      room_(std::move(room)),
      copies_(std::move(copies)),
      gpu_(std::move(gpu)),
      on_over_(std::move(on_over)) {}

Result<std::shared_ptr<const Filling>> Filling::begin(TensorDict batch, Storage room,
                                                      CopiesToHost copies,
                                                      std::shared_ptr<cuda::Gpu> gpu, void* stream,
                                                      std::function<void()> on_over) {
  TENDON_TRY(work, cuda::StreamWork::begin(gpu, static_cast<cuda::StreamHandle>(stream), kWhere));
  std::shared_ptr<Filling> filling(new Filling(std::move(batch), std::move(room), std::move(copies),
                                               std::move(gpu), std::move(on_over)));
  TENDON_CHECK(work.then([filling](Result<void> ready) {
    if (ready)
      filling->go_on();
    else
      filling->finish(std::move(ready));
  }));
  return std::shared_ptr<const Filling>(std::move(filling));
}

void Filling::go_on() {
  auto went = copied_count_ == copies_.copies.size() ? copied() : copy_next();
  if (!went) finish(std::move(went));
}

Result<void> Filling::copy_next() {
  TENDON_TRY(stream, gpu_->own_stream());
  TENDON_TRY(work, cuda::StreamWork::begin(gpu_, stream, kWhere));
  work.keep(std::make_shared<const TensorDict>(batch_));
  work.keep(room_.owner());
  work.keep(copies_.slot);
  if (copied_count_ == 0) TENDON_CHECK(copies_.gather(work));
  const GpuCopy& next = copies_.copies[copied_count_++];
  TENDON_CHECK(work.copy(next.destination, next.source, next.size_bytes));
  return gpu_->thread().post([self = shared_from_this()] { self->go_on(); });
}

Result<void> Filling::copied() {
  TENDON_TRY(stream, gpu_->own_stream());
  TENDON_TRY(work, cuda::StreamWork::begin(gpu_, stream, kWhere));
  return work.then([self = shared_from_this()](Result<void> done) {
    if (done) zero_gaps(*self->batch_.schema(), self->room_);
    self->finish(std::move(done));
  });
}

void Filling::finish(Result<void> result) {
  batch_ = TensorDict();
  room_ = Storage();
  copies_ = CopiesToHost();
  answer_.finish(std::move(result));
  on_over_();
}

}  // namespace tendon::v0::detail
