// SPDX-License-Identifier: Apache-2.0
#include "channel/staging.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <utility>
#include <vector>

#include "cuda/delivered_slot.hpp"
#include "cuda/gpus.hpp"
#include "memory/large_copy.hpp"
#include "tensor/copy.hpp"
#include "tensor/on_cpu.hpp"
#include "tensor/packed_copy.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kAlignmentBytes = 256;  // of each leaf that is copied by itself
constexpr std::uint64_t kPieceBytes = std::uint64_t{8} << 20;  // about a millisecond

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

cuda::DeviceAddress address_of(const std::byte* data) {
  return reinterpret_cast<cuda::DeviceAddress>(data);
}

/// The bytes of a packed batch that lie in one piece as Layout::aligned has them.
const PackedView* packed_alike(const TensorDict& batch) {
  const PackedView* const packed = packed_view(batch);
  return packed != nullptr && packed->layout == Layout::aligned ? packed : nullptr;
}

/// The batch, with leaves that have no gaps between their elements: one in host memory is packed,
/// and leaves on a GPU have none.
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

Result<TensorDict> copy_whole(const PackedView& packed, const GpuTarget& target,
                              cuda::StreamWork& work, Deadline deadline) {
  const std::uint64_t size = packed.schema->layout(packed.layout).total_bytes;
  TENDON_TRY(room, make_room(size, target, deadline));
  work.keep(room.slot);
  TENDON_CHECK(work.copy(room.slot->address(), address_of(packed.storage.data()), size));
  return make_packed(packed.schema, packed.layout, room.part(0, size), packed.values);
}

bool wants(const GpuTarget& target, std::size_t leaf) {
  return target.placement == nullptr || target.placement->is_on_gpu(leaf);
}

Result<TensorDict> copy_leaves(const TensorDict& batch, const GpuTarget& target,
                               cuda::StreamWork& work, Deadline deadline) {
  const auto& leaves = batch.schema()->leaves();
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i)
    if (wants(target, i)) size += aligned(leaves[i].size_bytes);
  TENDON_TRY(room, make_room(size, target, deadline));
  work.keep(room.slot);
  TensorDict delivered = batch;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!wants(target, i)) continue;
    const SchemaLeaf& leaf = leaves[i];
    TENDON_CHECK(work.copy(room.slot->address() + offset, address_of(leaf_view(batch, i).data),
                           leaf.size_bytes));
    TENDON_TRY(tensor, Tensor::view(room.part(offset, leaf.size_bytes), 0, leaf.dtype, leaf.shape));
    TENDON_CHECK(delivered.try_set(leaf.path, std::move(tensor), leaf.batching));
    offset += aligned(leaf.size_bytes);
  }
  return delivered;
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

Result<std::shared_ptr<cuda::Gpu>> wanted_gpu(const std::optional<Device>& device,
                                              std::string_view where, Deadline deadline) {
  if (!device || *device == cpu()) return std::shared_ptr<cuda::Gpu>();
  if (device->kind != DeviceKind::cuda) {
    return Error{ErrorCode::unsupported_device, where,
                 "the device is " + to_string(*device) +
                     "; legal are cpu and cuda, or none for where the tensors are"};
  }
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

std::vector<GpuCopy> copies_to_host(const TensorDict& batch, const Storage& room) {
  const PackedLayout& layout = batch.schema()->layout(Layout::aligned);
  std::vector<GpuCopy> copies;
  const auto add = [&](std::uint64_t offset, const std::byte* source, std::uint64_t size) {
    for (std::uint64_t at = 0; at < size; at += kPieceBytes)
      copies.push_back({address_of(room.data() + offset + at), address_of(source + at),
                        std::min(kPieceBytes, size - at)});
  };
  if (const PackedView* const packed = packed_alike(batch);
      packed != nullptr && packed->storage.device() != cpu()) {
    add(0, packed->storage.data(), layout.total_bytes);
    return copies;
  }
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.device != cpu()) add(layout.offsets[i], leaf.data, leaf.size_bytes);
  }
  return copies;
}

std::vector<GpuCopy> copies_on_gpu(const TensorDict& batch, const PlacedLayout& layout,
                                   cuda::DeviceAddress address) {
  std::vector<GpuCopy> copies;
  if (const PackedView* const packed = packed_alike(batch);
      packed != nullptr && packed->storage.device() != cpu()) {
    copies.push_back({address, address_of(packed->storage.data()), layout.gpu_bytes});
    return copies;
  }
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.device != cpu())
      copies.push_back({address + layout.offsets[i], address_of(leaf.data), leaf.size_bytes});
  }
  return copies;
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

Result<void> copy_to_host(const TensorDict& batch, const Storage& room, cuda::StreamWork work,
                          Deadline deadline,
                          const std::function<Result<void>(cuda::StreamWork&)>& wait) {
  TENDON_CHECK(pack_host_leaves(batch, room));
  work.keep(room.owner());
  work.keep(std::make_shared<const TensorDict>(batch));
  TENDON_CHECK(wait(work));  // a copy would wait without a deadline
  for (const GpuCopy& each : copies_to_host(batch, room)) {
    if (!deadline.is_poll() && deadline.has_passed())
      return Error{ErrorCode::timeout, "staging.copy", "the deadline passed between two copies"};
    TENDON_CHECK(work.copy(each.destination, each.source, each.size_bytes));
  }
  TENDON_CHECK(wait(work));
  zero_gaps(*batch.schema(), room);
  return {};
}

std::uint64_t bytes_on_gpu(const Schema& schema, const Placement* placement) {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < schema.leaves().size(); ++i)
    if (placement == nullptr || placement->is_on_gpu(i)) bytes += schema.leaves()[i].size_bytes;
  return bytes;
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
      TENDON_CHECK(work.copy(address_of(to.data), address_of(from.data), from.size_bytes));
  }
  return {};
}

Result<TensorDict> copy_to_gpu(const TensorDict& batch, const GpuTarget& target,
                               std::string_view where, Deadline deadline) {
  const Device device = target.gpu->context()->device();
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const Device from = leaf_view(batch, i).device;
    if (from == cpu() || from == device) continue;
    return Error{ErrorCode::unsupported_device, where,
                 "leaf '" + batch.leaf_path(i) + "' is on " + to_string(from) + ", wanted on " +
                     to_string(device) +
                     ": this process copies none from one GPU to another; receive it where it is, "
                     "or on device=\"cpu\""};
  }
  TENDON_TRY(source, without_gaps(batch));
  TENDON_TRY(work, cuda::StreamWork::begin(target.gpu, target.stream, where));
  work.keep(std::make_shared<const TensorDict>(source));
  // Kernels rely on more alignment than other layouts have.
  const PackedView* const packed = packed_alike(source);
  if (packed != nullptr && (target.placement == nullptr || target.placement->is_all_on_gpu()))
    return copy_whole(*packed, target, work, deadline);
  return copy_leaves(source, target, work, deadline);
}

}  // namespace tendon::v0::detail
