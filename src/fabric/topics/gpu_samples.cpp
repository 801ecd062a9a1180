// SPDX-License-Identifier: Apache-2.0
#include "fabric/topics/gpu_samples.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <tendon/session/limits.hpp>
#include <utility>

#include "channel/direct_show.hpp"
#include "channel/gpu_offer.hpp"
#include "channel/gpu_wait.hpp"
#include "channel/loaned_batch.hpp"
#include "channel/not_direct.hpp"
#include "channel/on_gpu.hpp"
#include "channel/placed_layout.hpp"
#include "channel/staging.hpp"
#include "channel/to_host.hpp"
#include "cuda/slot_sizes.hpp"
#include "fabric/topics/late_copy.hpp"
#include "tensor/copy.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kHere = "publisher.publish";
// For the work that a peer does once, when it is first passed memory of a GPU.
constexpr std::chrono::seconds kAnswerPatience{2};

}  // namespace

Result<std::shared_ptr<KeptSample>> GpuSamples::copy(const TensorDict& sample, const How& how,
                                                     const Readers& readers) {
  TENDON_TRY(device, gpu_of(sample, kHere));
  TENDON_TRY(gpu, wanted_gpu(device, kHere, how.deadline));
  const Source source{sample, gpu, how};
  auto kept = std::make_shared<KeptSample>();
  TENDON_TRY(who, keep_there(source, readers, *kept));
  if (who != Who::all) {
    if (context_->options().device_path == DevicePath::direct_only && !readers.links.empty()) {
      return not_direct(
          kHere, gpu->context()->device(), key_,
          "a subscriber cannot read it there, the pool has no room for it, or too much of it "
          "lies in host memory");
    }
    TENDON_CHECK(stage(source, kept));
    return kept;
  }
  const SharedMessage& there = kept->on_gpu->message;
  kept->has_body = false;
  kept->message.schema = there.schema;
  kept->message.placement = there.placement;
  kept->message.descriptor = there.descriptor;
  return kept;
}

Result<void> GpuSamples::stage(const Source& source, const std::shared_ptr<KeptSample>& kept) {
  // First: a stream under capture is refused before a slot is taken for it.
  TENDON_TRY(work, begin(source));
  const AcquireSlot acquire = [this](std::uint64_t size_bytes) {
    return acquire_(size_bytes, ~std::uint64_t{0});
  };
  TENDON_CHECK(kept->make_room(source.sample, sizeof(SampleHeader), acquire));
  SharedMessage& message = kept->message;
  message.placement = placement_of(source.sample, source.gpu->context()->uuid(), 0);
  const std::uint64_t size = message.descriptor.payload_bytes;
  const Storage room(kept, kept->memory().data(), size, Access::read_write);
  const auto wait_here = [&](cuda::StreamWork& of) { return wait(of, source.how); };
  auto copied =
      copy_to_host(source.sample, room, std::move(work),
                   *context_->memory().devices->of(source.gpu), source.how.deadline, wait_here);
  if (!copied) return explain(std::move(copied).error(), "copied", size);
  count(count_d2h_, bytes_d2h_, message);
  return {};
}

// On the GPU

Result<GpuSamples::Who> GpuSamples::keep_there(const Source& source, const Readers& readers,
                                               KeptSample& kept) {
  if (readers.links.empty() || context_->options().device_path == DevicePath::staged)
    return Who::none;
  auto there = std::make_shared<SampleOnGpu>();
  there->gpu = source.gpu;
  TENDON_TRY(fits, describe(source, *there));
  if (!fits) return Who::none;
  TENDON_TRY(work, begin(source));
  SharedMessage& message = there->message;
  if (!has_room_for(message.on_gpu.size_bytes, readers.history)) return Who::none;
  const PlacedLayout layout = placed_layout(*message.schema, *message.placement);
  auto slot = loaned_slot_of(source.sample, layout, *context_->memory().passed->of(source.gpu));
  const bool is_loan = slot != nullptr;
  if (!is_loan) {
    TENDON_TRY(free, slot_for(source, message.on_gpu.size_bytes));
    if (free == nullptr) return Who::none;
    slot = std::move(free);
  }
  TENDON_TRY(who, who_reads_there(*slot, readers, source.how));
  if (who == Who::none) return who;
  work.keep(slot);
  if (is_loan) {
    work.follow_stream();  // the program fills it there
  } else {
    work.keep(std::make_shared<const TensorDict>(source.sample));
    TENDON_CHECK(pack_on_gpu(source.sample, layout, slot->address(), work, source.how.deadline));
  }
  message.on_gpu.slot = std::move(slot);
  if (auto done = wait(work, source.how); !done) {
    return explain(std::move(done).error(), is_loan ? "filled the loan of" : "copied",
                   message.on_gpu.size_bytes);
  }
  if (!is_loan) count(count_d2d_, bytes_d2d_, message);
  kept.on_gpu = std::move(there);
  return who;
}

// Describes the message without its leaves on the GPU. False: the rest does not travel inline.
Result<bool> GpuSamples::describe(const Source& source, SampleOnGpu& there) {
  const TensorDict& sample = source.sample;
  SharedMessage& message = there.message;
  message.schema = sample.schema();
  message.placement = placement_of(sample, source.gpu->context()->uuid(), 0);
  const PlacedLayout layout = placed_layout(*message.schema, *message.placement);
  std::string values;
  if (sample.values() != nullptr) {
    TENDON_TRY(json, to_json(*sample.values()));
    values = std::move(json);
  }
  if (layout.host_bytes + values.size() > kMaxInlineBytes) return false;
  message.on_gpu.size_bytes = layout.gpu_bytes;
  Descriptor& descriptor = message.descriptor;
  descriptor.kind = MessageKind::data;
  descriptor.layout = Layout::aligned;
  descriptor.device_parts = 1;
  descriptor.payload_bytes = layout.host_bytes;
  descriptor.values_bytes = static_cast<std::uint32_t>(values.size());
  descriptor.header_bytes = sizeof(SampleHeader);
  if (descriptor.body_bytes() > kMaxInlineBytes) return false;
  there.body.resize(layout.host_bytes + values.size() + sizeof(SampleHeader));
  message.body = there.body;
  std::memcpy(there.body.data() + layout.host_bytes, values.data(), values.size());
  const Storage room(nullptr, there.body.data(), layout.host_bytes, Access::read_write);
  for (std::size_t i = 0; i < sample.leaf_count(); ++i) {
    if (message.placement->is_on_gpu(i)) continue;
    const Tensor leaf = sample.leaf(i);
    TENDON_TRY(place, Tensor::view(room, layout.offsets[i], leaf.dtype(), leaf.shape()));
    copy_strided(place, leaf);
  }
  return true;
}

// The rest of the pool is for others, and for samples that readers keep.
bool GpuSamples::has_room_for(std::uint64_t size_bytes, std::uint32_t history) const {
  const std::uint64_t cap = context_->options().device_cap_bytes;
  const std::uint64_t size = std::max<std::uint64_t>(size_bytes, 1);
  return size <= cap && cuda::slot_bytes_for(size) <= cap / 2 / (std::uint64_t{history} + 1);
}

// Null: the pool has none to spare.
Result<std::shared_ptr<cuda::DeviceSlot>> GpuSamples::slot_for(const Source& source,
                                                               std::uint64_t size_bytes) const {
  const std::uint64_t size = std::max<std::uint64_t>(size_bytes, 1);
  auto slot = context_->memory().passed->of(source.gpu)->acquire(size, source.how.deadline);
  if (slot) return slot;
  const ErrorCode why = slot.error().code;
  const bool is_late = why == ErrorCode::timeout && source.how.deadline.is_poll();
  if (is_late || why == ErrorCode::resource_exhausted || why == ErrorCode::message_too_large)
    return std::shared_ptr<cuda::DeviceSlot>();
  return slot;
}

// Waits for a first answer, as a send of a pipe does; a late peer gets the other copy.
Result<GpuSamples::Who> GpuSamples::who_reads_there(const cuda::DeviceSlot& slot,
                                                    const Readers& readers, const How& how) const {
  std::vector<Link*> links;
  links.reserve(readers.links.size());
  for (const auto& link : readers.links) links.push_back(link.get());
  std::size_t there = 0;
  std::size_t elsewhere = 0;
  std::optional<Error> error;
  const auto look = [&] {
    there = elsewhere = 0;
    bool all_known = true;
    for (Link* const link : links) {
      if (link->ended()) continue;
      const auto way = ask_way(*link, slot);
      ++(way == DevicesOut::Way::direct && has_share(*link, slot) ? there : elsewhere);
      if (way == DevicesOut::Way::unknown) all_known = false;
    }
    return all_known;
  };
  const Deadline until = earlier(how.deadline, kAnswerPatience);
  for (bool known = look(); !known && !until.has_passed();) {
    const Deadline slice = how.go_on ? earlier(until, kGoOnSlice) : until;
    known = context_->wait(WaitedLinks(links), slice, [&] {
      if (auto still = how.usable(); !still) error = std::move(still).error();
      if (error) return true;
      for (Link* const link : links) context_->poll_link(*link);
      return look();
    });
    if (error) return *std::move(error);
    if (!known && how.go_on && !how.go_on()) return ended_by_program();
    if (!known && until.has_passed())
      for (Link* const link : links) note_late(*link, slot);
  }
  return there == 0 ? Who::none : elsewhere == 0 ? Who::all : Who::some;
}

// Showing

Result<const SharedMessage*> GpuSamples::message_for(
    Link& link, const std::shared_ptr<const KeptSample>& sample, Reads reads) {
  using State = SampleOnGpu::Staged;
  const auto& there = sample->on_gpu;
  if (there == nullptr) return &sample->message;
  const cuda::Uuid& gpu = there->message.placement->gpu;
  TENDON_CHECK(offer_gpu(link, gpu, kHere));
  if (reads == Reads::where_it_lies && way_of(link, gpu) == DevicesOut::Way::direct)
    return &there->message;
  if (const SharedMessage* const here = sample->in_host_memory()) return here;
  if (context_->options().device_path == DevicePath::direct_only) {
    return Error{ErrorCode::unsupported_device, kHere,
                 "it cannot be read on its GPU, and ContextOptions::device_path is direct_only"};
  }
  if (there->state == State::none) {
    // Nothing is dropped for it that its reader shall still see.
    const auto begun = LateCopy::begin(
        sample,
        [acquire = acquire_, kept_from = sample->header.sequence](std::uint64_t size_bytes) {
          return acquire(size_bytes, kept_from);
        },
        [sample, staged = staged_](auto body) { staged(*sample, std::move(body)); });
    there->state = begun ? State::under_way : State::failed;
  }
  if (there->state == State::failed) {
    return Error{ErrorCode::unsupported_device, kHere,
                 "it lies on a GPU, and could not be copied to host memory for a late reader"};
  }
  return nullptr;
}

GpuSamples::Next GpuSamples::take_staged(const KeptSample& sample,
                                         Result<std::shared_ptr<const KeptBody>> body) {
  using State = SampleOnGpu::Staged;
  SampleOnGpu& there = *sample.on_gpu;
  if (!body) {
    const bool may_be_later = body.error().code == ErrorCode::resource_exhausted;
    there.state = may_be_later ? State::none : State::failed;
    if (!may_be_later) return Next::now;
    return std::exchange(is_paused_, true) ? Next::with_others : Next::later;
  }
  there.state = State::here;
  there.staged = *std::move(body);
  count(count_d2h_, bytes_d2h_, there.staged->message);
  return Next::now;
}

void GpuSamples::count_in(PublisherStats& stats) const {
  stats.copies_d2h += count_d2h_.load(std::memory_order_relaxed);
  stats.bytes_d2h += bytes_d2h_.load(std::memory_order_relaxed);
  stats.copies_d2d += count_d2d_.load(std::memory_order_relaxed);
  stats.bytes_d2d += bytes_d2d_.load(std::memory_order_relaxed);
}

void GpuSamples::count(std::atomic<std::uint64_t>& samples, std::atomic<std::uint64_t>& bytes,
                       const SharedMessage& message) {
  samples.fetch_add(1, std::memory_order_relaxed);
  bytes.fetch_add(bytes_on_gpu(*message.schema, message.placement.get()),
                  std::memory_order_relaxed);
}

// Waiting

Result<cuda::StreamWork> GpuSamples::begin(const Source& source) {
  return cuda::StreamWork::begin(source.gpu, static_cast<cuda::StreamHandle>(source.how.stream),
                                 kHere);
}

Error GpuSamples::explain(Error why, std::string_view done, std::uint64_t size_bytes) const {
  if (why.code != ErrorCode::timeout) return why;
  return Error{ErrorCode::timeout, kHere,
               "the GPU had not " + std::string(done) + " " + std::to_string(size_bytes) +
                   " bytes for " + key_ +
                   " before the deadline: its stream has work to do first; nothing was "
                   "published"};
}

Error GpuSamples::ended_by_program() const {
  return Error{ErrorCode::cancelled, kHere,
               "the program ended the wait for the GPU; nothing was published on " + key_};
}

Result<void> GpuSamples::wait(cuda::StreamWork& work, const How& how) const {
  for (;;) {
    const Deadline slice = how.go_on ? earlier(how.deadline, kGoOnSlice) : how.deadline;
    auto waited = wait_for_gpu(work, context_, nullptr, slice, how.usable);
    const bool is_late = !waited && waited.error().code == ErrorCode::timeout;
    if (!is_late || slice.time_point() == how.deadline.time_point()) return waited;
    if (!how.go_on()) return ended_by_program();
  }
}

}  // namespace tendon::v0::detail
