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
  return {room.slot->address() + offset, address_of(data), size};
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

std::vector<GpuCopy> copies_to_host(const TensorDict& batch, const Storage& room) {
  const PackedLayout& layout = batch.schema()->layout(Layout::aligned);
  std::vector<GpuCopy> copies;
  const auto add = [&](std::uint64_t offset, const std::byte* source, std::uint64_t size) {
    copies.push_back({address_of(room.data() + offset), address_of(source), size});
  };
  if (const PackedView* const packed = packed_alike(batch);
      packed != nullptr && packed->storage.device() != cpu()) {
    add(0, packed->storage.data(), layout.total_bytes);
    return in_pieces(copies);
  }
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.device != cpu()) add(layout.offsets[i], leaf.data, leaf.size_bytes);
  }
  return in_pieces(copies);
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

Result<TensorDict> host_run_of(const TensorDict& batch, std::string_view where) {
  TENDON_CHECK(check_on_cpu(batch, where));
  if (packed_view(batch) != nullptr) return batch;
  const auto& schema = batch.schema();
  const std::uint64_t size = schema->layout(Layout::aligned).total_bytes;
  TENDON_TRY(storage, Storage::allocate(size));
  pack_piece(batch, Layout::aligned, 0, {storage.data(), size});
  return make_packed(schema, Layout::aligned, std::move(storage), batch.values());
}

Result<void> copy_into_leaves(const TensorDict& batch, const TensorDict& destination,
                              cuda::StreamWork& work) {
  TENDON_TRY(host, host_run_of(batch, "pipe.recv_into"));
  work.keep(packed_view(host)->storage.owner());
  work.keep(std::make_shared<const TensorDict>(destination));
  for (std::size_t i = 0; i < host.leaf_count(); ++i) {
    const LeafView from = leaf_view(host, i);
    const LeafView to = leaf_view(destination, i);
    if (to.device == cpu())
      copy_strided(destination.leaf(i), host.leaf(i));
    else
      TENDON_CHECK(work.copy(address_of(to.data), address_of(from.data), from.size_bytes));
  }
  return {};
}

Result<GpuArrival> arrival_of(const TensorDict& host, const GpuTarget& target, Deadline deadline) {
  const PackedView& packed = *packed_view(host);
  // Kernels rely on more alignment than other layouts have.
  const bool is_aligned = packed.layout == Layout::aligned;
  if (is_aligned && (target.placement == nullptr || target.placement->is_all_on_gpu()))
    return whole_arrival(packed, target, deadline);
  return arrival_of_leaves(host, target, deadline);
}

std::vector<GpuCopy> in_pieces(const std::vector<GpuCopy>& copies) {
  std::vector<GpuCopy> pieces;
  for (const GpuCopy& copy : copies) {
    for (std::uint64_t at = 0; at < copy.size_bytes; at += kPieceBytes)
      pieces.push_back(
          {copy.destination + at, copy.source + at, std::min(kPieceBytes, copy.size_bytes - at)});
  }
  return pieces;
}

Result<TensorDict> copy_to_gpu(const TensorDict& batch, const GpuTarget& target,
                               std::string_view where, Deadline deadline) {
  TENDON_TRY(host, host_run_of(batch, where));
  TENDON_TRY(work, cuda::StreamWork::begin(target.gpu, target.stream.here(), where));
  TENDON_TRY(arrival, arrival_of(host, target, deadline));
  work.keep(packed_view(host)->storage.owner());
  work.keep(arrival.slot);
  for (const GpuCopy& each : arrival.copies)
    TENDON_CHECK(work.copy(each.destination, each.source, each.size_bytes));
  return std::move(arrival.batch);
}

}  // namespace tendon::v0::detail
