// SPDX-License-Identifier: Apache-2.0
#include "channel/staging.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "cuda/address.hpp"
#include "cuda/delivered_slot.hpp"
#include "cuda/gpus.hpp"
#include "memory/large_copy.hpp"
#include "tensor/copy.hpp"
#include "tensor/on_cpu.hpp"
#include "tensor/packed_copy.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kAlignmentBytes = 256;  // of each leaf that is copied separately

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

/// Returns the batch with leaves that have no gaps between their elements: one in host memory is
/// packed, and leaves on a GPU have none.
Result<TensorDict> without_gaps(const TensorDict& batch) {
  if (packed_view(batch) != nullptr || !check_on_cpu(batch, "pipe")) return batch;
  const auto& schema = batch.schema();
  const std::uint64_t size = schema->layout(Layout::aligned).total_bytes;
  TENDON_TRY(storage, Storage::allocate(size));
  pack_piece(batch, Layout::aligned, 0, {storage.data(), size});
  return make_packed(schema, Layout::aligned, std::move(storage), batch.values());
}

/// Memory of a slot that the stream fills.
struct Room {
  std::shared_ptr<const void> owner;
  std::shared_ptr<cuda::DeviceSlot> slot;
  Device device;

  [[nodiscard]] Storage part(std::uint64_t offset, std::uint64_t size) const {
    auto* const data = reinterpret_cast<std::byte*>(slot->address() + offset);
    return {owner, data, size, Access::read_write, Origin::here, device};
  }
};

Result<Room> make_room(std::uint64_t size_bytes, const GpuTarget& target, Deadline deadline) {
  TENDON_TRY(slot, target.pool->acquire(std::max<std::uint64_t>(size_bytes, 1), deadline));
  Room room;
  room.owner = cuda::deliver(target.gpu, slot, target.stream);
  room.slot = std::move(slot);
  room.device = target.gpu->context()->device();
  return room;
}

GpuCopy copy_of(const Room& room, std::uint64_t offset, const std::byte* data, std::uint64_t size) {
  return {room.slot->address() + offset, cuda::address_of(data), size};
}

Result<GpuArrival> whole_arrival(const PackedView& packed, const GpuTarget& target,
                                 Deadline deadline) {
  const std::uint64_t size = packed.schema->layout(packed.layout).total_bytes;
  TENDON_TRY(room, make_room(size, target, deadline));
  TENDON_TRY(batch, make_packed(packed.schema, packed.layout, room.part(0, size), packed.values));
  return GpuArrival{std::move(batch), room.slot, {copy_of(room, 0, packed.storage.data(), size)}};
}

bool wants(const GpuTarget& target, std::size_t leaf) {
  return target.placement == nullptr || target.placement->is_on_gpu(leaf);
}

Result<GpuArrival> arrival_of_leaves(const TensorDict& batch, const GpuTarget& target,
                                     Deadline deadline) {
  const auto& leaves = batch.schema()->leaves();
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (wants(target, i)) size += aligned(leaves[i].size_bytes);
  TENDON_TRY(room, make_room(size, target, deadline));
  GpuArrival arrival{batch, room.slot, {}};
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!wants(target, i)) continue;
    const SchemaLeaf& leaf = leaves[i];
    arrival.copies.push_back(copy_of(room, offset, leaf_view(batch, i).data, leaf.size_bytes));
    TENDON_TRY(tensor, Tensor::view(room.part(offset, leaf.size_bytes), 0, leaf.dtype, leaf.shape));
    TENDON_CHECK(arrival.batch.try_set(leaf.path, std::move(tensor), leaf.batching));
    offset += aligned(leaf.size_bytes);
  }
  return arrival;
}

}  // namespace

Result<std::optional<Device>> gpu_of(const TensorDict& batch, std::string_view where) {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.device == cpu()) continue;
    const auto named = [&](std::size_t index) { return "leaf '" + batch.leaf_path(index) + "'"; };
    if (leaf.device.kind != DeviceKind::cuda) {
      return Error{ErrorCode::unsupported_device, where,
                   named(i) + " is on " + to_string(leaf.device) +
                       "; legal are cpu and cuda: copy it there first"};
    }
    if (!leaf.contiguous) {
      return Error{ErrorCode::not_contiguous, where,
                   named(i) + " on " + to_string(leaf.device) +
                       " has gaps between its elements: make it contiguous first"};
    }
    if (!first) {
      first = i;
    } else if (const Device other = leaf_view(batch, *first).device; other != leaf.device) {
      return Error{ErrorCode::unsupported_device, where,
                   named(*first) + " is on " + to_string(other) + " and " + named(i) + " on " +
                       to_string(leaf.device) +
                       "; a message has tensors of one GPU: send one for "
                       "each, or copy them to one GPU first"};
    }
  }
  if (!first) return std::optional<Device>();
  return std::optional<Device>(leaf_view(batch, *first).device);
}

Result<bool> wants_gpu(const std::optional<Device>& device, std::string_view where) {
  if (!device || *device == cpu()) return false;
  if (device->kind == DeviceKind::cuda) return true;
  return Error{ErrorCode::unsupported_device, where,
               "the device is " + to_string(*device) +
                   "; legal are cpu and cuda, or none for where the tensors are"};
}

Result<std::shared_ptr<cuda::Gpu>> wanted_gpu(const std::optional<Device>& device,
                                              std::string_view where, Deadline deadline) {
  TENDON_TRY(wanted, wants_gpu(device, where));
  if (!wanted) return std::shared_ptr<cuda::Gpu>();
  TENDON_TRY(gpus, cuda::process_gpus());
  return gpus->use(device->index, deadline);
}

bool lies_on(const TensorDict& batch, Device device) {
  for (std::size_t i = 0; i < batch.leaf_count(); ++i)
    if (leaf_view(batch, i).device != device) return false;
  return true;
}

std::shared_ptr<const Placement> placement_of(const TensorDict& batch, const cuda::Uuid& gpu,
                                              std::uint32_t number) {
  auto placement = std::make_shared<Placement>();
  placement->gpu = gpu;
  placement->leaves.reserve(batch.leaf_count());
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const bool is_on_gpu = leaf_view(batch, i).device != cpu();
    placement->leaves.push_back(is_on_gpu ? static_cast<std::uint8_t>(number + 1) : 0);
  }
  return placement;
}

Result<void> pack_host_leaves(const TensorDict& batch, const Storage& room) {
  const auto leaves = batch.schema()->leaves();
  const PackedLayout& layout = batch.schema()->layout(Layout::aligned);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.device != cpu()) continue;
    const Storage place = room.part(layout.offsets[i], leaf.size_bytes);
    if (leaf.contiguous) {
      copy_part({place.data(), leaf.size_bytes}, {leaf.data, leaf.size_bytes}, layout.total_bytes);
    } else {
      TENDON_TRY(packed, Tensor::view(place, 0, leaves[i].dtype, leaves[i].shape));
      copy_strided(packed, batch.leaf(i));
    }
  }
  return {};
}

void zero_gaps(const Schema& schema, const Storage& room) {
  const PackedLayout& layout = schema.layout(Layout::aligned);
  std::uint64_t end = 0;
  const auto zero_to = [&](std::uint64_t next) {
    if (next > end) std::memset(room.data() + end, 0, next - end);
  };
  for (std::size_t i = 0; i < schema.leaves().size(); ++i) {
    zero_to(layout.offsets[i]);
    end = layout.offsets[i] + schema.leaves()[i].size_bytes;
  }
  zero_to(layout.total_bytes);
}

std::uint64_t bytes_on_gpu(const Schema& schema, const Placement* placement) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < schema.leaves().size(); ++i)
    if (placement == nullptr || placement->is_on_gpu(i)) bytes += schema.leaves()[i].size_bytes;
  return bytes;
}

Result<TensorDict> source_of(const TensorDict& batch, Device device, std::string_view where) {
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const Device from = leaf_view(batch, i).device;
    if (from == cpu() || from == device) continue;
    return Error{ErrorCode::unsupported_device, where,
                 "leaf '" + batch.leaf_path(i) + "' is on " + to_string(from) + ", wanted on " +
                     to_string(device) +
                     ": this process copies none from one GPU to another; receive it where it is, "
                     "or on device=\"cpu\""};
  }
  return without_gaps(batch);
}

Result<void> copy_into_leaves(const TensorDict& batch, const TensorDict& destination,
                              cuda::StreamWork& work) {
  TENDON_TRY(source, without_gaps(batch));
  work.keep(std::make_shared<const TensorDict>(source));
  work.keep(std::make_shared<const TensorDict>(destination));
  for (std::size_t i = 0; i < source.leaf_count(); ++i) {
    const LeafView from = leaf_view(source, i);
    const LeafView to = leaf_view(destination, i);
    if (to.device == cpu())
      copy_strided(destination.leaf(i), source.leaf(i));
    else
      TENDON_CHECK(
          work.copy(cuda::address_of(to.data), cuda::address_of(from.data), from.size_bytes));
  }
  return {};
}

Result<GpuArrival> arrival_of(const TensorDict& source, const GpuTarget& target,
                              Deadline deadline) {
  // Kernels rely on more alignment than other layouts have.
  const PackedView* const packed = packed_alike(source);
  if (packed != nullptr && (target.placement == nullptr || target.placement->is_all_on_gpu()))
    return whole_arrival(*packed, target, deadline);
  return arrival_of_leaves(source, target, deadline);
}

Result<TensorDict> copy_to_gpu(const TensorDict& batch, const GpuTarget& target,
                               std::string_view where, Deadline deadline) {
  TENDON_TRY(source, source_of(batch, target.gpu->context()->device(), where));
  TENDON_TRY(work, cuda::StreamWork::begin(target.gpu, target.stream.here(), where));
  TENDON_TRY(arrival, arrival_of(source, target, deadline));
  work.keep(std::make_shared<const TensorDict>(source));
  work.keep(arrival.slot);
  for (const GpuCopy& each : arrival.copies)
    TENDON_CHECK(work.copy(each.destination, each.source, each.size_bytes));
  return std::move(arrival.batch);
}

}  // namespace tendon::v0::detail
