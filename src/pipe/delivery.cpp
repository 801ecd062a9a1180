// SPDX-License-Identifier: Apache-2.0
#include "pipe/delivery.hpp"

#include <string_view>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "cuda/gpus.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kReceive = "pipe.recv_async";

}  // namespace

Delivery::Delivery(TensorDict batch, Target target, std::function<void()> on_over)
    : batch_(std::move(batch)), target_(std::move(target)), on_over_(std::move(on_over)) {}

Result<std::shared_ptr<Delivery>> Delivery::begin(TensorDict batch, Target target,
                                                  std::function<void()> on_over) {
  cuda::DeviceThread* thread = nullptr;
  if (target.gpu != nullptr) {
    thread = &target.gpu->thread();
  } else {
    TENDON_CHECK(cuda::check_in_use(target.placement->gpu));
    TENDON_TRY(process_thread, cuda::process_device_thread());
    thread = process_thread;
  }
  std::shared_ptr<Delivery> delivery(
      new Delivery(std::move(batch), std::move(target), std::move(on_over)));
  TENDON_CHECK(thread->post([delivery] { delivery->go_on(); }));
  return delivery;
}

void Delivery::go_on() {
  if (auto went = step(); !went) finish(std::move(went));
}

Result<void> Delivery::step() {
  if (is_stopped_.load(std::memory_order_relaxed))
    return Error{ErrorCode::cancelled, kReceive, "the receive was cancelled"};
  if (target_.gpu == nullptr) TENDON_CHECK(find_gpu());
  if (!work_) {
    const bool is_there = lies_on(batch_, target_.gpu->context()->device());
    if (is_there && target_.kind == DeviceCopyKind::h2d) {  // it was put back before
      delivered_ = batch_;
      finish({});
      return {};
    }
    bool has_room = true;
    if (target_.kind == DeviceCopyKind::d2h) {
      TENDON_CHECK(make_host_room());
    } else {
      TENDON_TRY(made, make_room());
      has_room = made;
    }
    // The device thread makes the slot's segment before it returns here.
    if (!has_room)
      return target_.gpu->thread().post([self = shared_from_this()] { self->go_on(); });
  }
  if (copied_count_ != copies_.size()) return copy_piece();
  return work_->then(
      [self = shared_from_this()](Result<void> done) { self->finish(std::move(done)); });
}

Result<void> Delivery::find_gpu() {
  TENDON_TRY(found, cuda::find_process_gpu(target_.placement->gpu, Deadline::never()));
  target_.gpu = std::move(found);
  return {};
}

Result<bool> Delivery::make_room() {
  // An invalid stream, or another GPU's, would prove nothing when the batch is dropped.
  if (!target_.stream.is_replaced_here())
    TENDON_CHECK(cuda::StreamWork::begin(target_.gpu, target_.stream.here(), kReceive));
  TENDON_TRY(source, source_of(batch_, target_.gpu->context()->device(), kReceive));
  const auto pool = target_.pools->of(target_.gpu);
  auto arrival = arrival_of(source,
                            {.gpu = target_.gpu,
                             .pool = pool,
                             .stream = target_.stream,
                             .placement = target_.placement.get()},
                            Deadline::now());
  if (!arrival) {
    if (arrival.error().code == ErrorCode::timeout) return false;
    return std::move(arrival).error();
  }
  TENDON_TRY(stream, target_.gpu->own_stream());
  TENDON_TRY(work, cuda::StreamWork::begin(target_.gpu, stream, kReceive));
  work_ = std::move(work);
  work_->keep(std::make_shared<const TensorDict>(std::move(source)));
  work_->keep(arrival->slot);
  copies_ = in_pieces(arrival->copies);
  delivered_ = std::move(arrival->batch);
  return true;
}

Result<void> Delivery::make_host_room() {
  const auto& schema = batch_.schema();
  TENDON_TRY(room, Storage::allocate(schema->layout(Layout::aligned).total_bytes));
  TENDON_CHECK(pack_host_leaves(batch_, room));
  zero_gaps(*schema, room);
  TENDON_TRY(stream, target_.gpu->own_stream());
  TENDON_TRY(work, cuda::StreamWork::begin(target_.gpu, stream, kReceive));
  work_ = std::move(work);
  work_->keep(room.owner());
  work_->keep(std::make_shared<const TensorDict>(batch_));
  copies_ = leaf_copies_to_host(batch_, room);
  TENDON_TRY(packed, make_packed(schema, Layout::aligned, std::move(room), batch_.values()));
  delivered_ = std::move(packed);
  return {};
}

Result<void> Delivery::copy_piece() {
  const GpuCopy& next = copies_[copied_count_++];
  TENDON_CHECK(work_->copy(next.destination, next.source, next.size_bytes));
  return target_.gpu->thread().post([self = shared_from_this()] { self->go_on(); });
}

void Delivery::finish(Result<void> result) {
  work_.reset();  // it keeps both memories until the GPU has done it
  batch_ = TensorDict();
  if (!result) delivered_ = TensorDict();
  answer_.finish(std::move(result));
  on_over_();
}

}  // namespace tendon::v0::detail
