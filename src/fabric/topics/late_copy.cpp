// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/late_copy.hpp"

#include <cstring>
#include <utility>

#include "channel/direct_batch.hpp"
#include "channel/staging.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kHere = "publisher.stage";

}  // namespace

Result<void> LateCopy::begin(std::shared_ptr<const KeptSample> sample, AcquireSlot acquire,
                             OnOver on_over) {
  cuda::DeviceThread& thread = sample->on_gpu->gpu->thread();
  const std::shared_ptr<LateCopy> copy(
      new LateCopy(std::move(sample), std::move(acquire), std::move(on_over)));
  return thread.post([copy] { copy->go_on(); });
}

void LateCopy::go_on() {
  if (auto went = step(); !went) finish(std::move(went));
}

Result<void> LateCopy::step() {
  if (!work_) TENDON_CHECK(make_room());
  if (copied_count_ == copies_.size()) {
    return work_->then(
        [self = shared_from_this()](Result<void> done) { self->finish(std::move(done)); });
  }
  const GpuCopy& next = copies_[copied_count_++];
  TENDON_CHECK(work_->copy(next.destination, next.source, next.size_bytes));
  return sample_->on_gpu->gpu->thread().post([self = shared_from_this()] { self->go_on(); });
}

Result<void> LateCopy::make_room() {
  const SampleOnGpu& there = *sample_->on_gpu;
  const SharedMessage& message = there.message;
  const auto& slot = message.on_gpu.slot;
  const std::uint64_t host_bytes = message.descriptor.payload_bytes;
  const std::uint64_t size = message.schema->layout(Layout::aligned).total_bytes;
  auto body = std::make_shared<KeptBody>();
  SharedMessage what = message;
  what.on_gpu = {};
  what.body = {};
  what.descriptor.device_parts = 0;
  what.descriptor.payload_bytes = size;
  TENDON_CHECK(body->make_room(std::move(what), sizeof(SampleHeader), acquire_));
  // Values and header stand behind the payload.
  const std::size_t rest = there.body.size() - host_bytes;
  std::memcpy(body->memory().data() + size, there.body.data() + host_bytes, rest);
  auto* const host = const_cast<std::byte*>(there.body.data());  // read alone
  auto* const data = reinterpret_cast<std::byte*>(slot->address());
  TENDON_TRY(batch, placed_batch({message.schema, *message.placement,
                                  Storage(slot, data, message.on_gpu.size_bytes, Access::read_only,
                                          Origin::here, there.gpu->context()->device()),
                                  Storage(sample_, host, host_bytes, Access::read_only), nullptr}));
  const Storage room(body, body->memory().data(), size, Access::read_write);
  TENDON_CHECK(pack_host_leaves(batch, room));
  zero_gaps(*message.schema, room);
  TENDON_TRY(stream, there.gpu->own_stream());
  TENDON_TRY(work, cuda::StreamWork::begin(there.gpu, stream, kHere));
  work.keep(body);
  work.keep(slot);
  copies_ = leaf_copies_to_host(batch, room);
  work_ = std::move(work);
  body_ = std::move(body);
  return {};
}

void LateCopy::finish(Result<void> result) {
  work_.reset();  // it keeps both memories until the GPU has done it
  sample_ = nullptr;
  if (result)
    on_over_(std::shared_ptr<const KeptBody>(std::move(body_)));
  else
    on_over_(std::move(result).error());
}

}  // namespace tendon::v0::detail
