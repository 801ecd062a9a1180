// SPDX-License-Identifier: Apache-2.0
#include "channel/to_host.hpp"

#include <algorithm>
#include <tendon/tensor/packed.hpp>
#include <utility>

#include "channel/staging.hpp"
#include "cuda/address.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kPieceBytes = std::uint64_t{8} << 20;  // about a millisecond
constexpr std::uint64_t kRunAlignmentBytes = 256;              // in the slot

/// Small leaves on the GPU that are neighbours in the layout: no other leaf has bytes between them.
struct Run {
  std::size_t first = 0;  // leaf
  std::size_t last = 0;
  std::uint64_t begin = 0;  // in the layout
  std::uint64_t end = 0;
};

/// Finds the runs of two leaves or more: a single leaf needs one copy anyway.
std::vector<Run> runs_of(const TensorDict& batch, const PackedLayout& layout) {
  std::vector<Run> runs;
  bool continues = false;
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    const LeafView leaf = leaf_view(batch, i);
    if (leaf.size_bytes == 0) continue;
    const bool is_small = leaf.device != cpu() && leaf.size_bytes < kLargeLeafBytes;
    if (is_small && !continues) runs.push_back({.first = i, .begin = layout.offsets[i]});
    if (is_small) {
      runs.back().last = i;
      runs.back().end = layout.offsets[i] + leaf.size_bytes;
    }
    continues = is_small;
  }
  std::erase_if(runs, [](const Run& run) { return run.first == run.last; });
  return runs;
}

std::uint64_t room_in_slot(const Run& run) {
  return (run.end - run.begin + kRunAlignmentBytes - 1) / kRunAlignmentBytes * kRunAlignmentBytes;
}

class Plan {
 public:
  Plan(const TensorDict& batch, const Storage& room)
      : batch_(batch), layout_(batch.schema()->layout(Layout::aligned)), room_(room) {}

  void copy(std::uint64_t offset, cuda::DeviceAddress source, std::uint64_t size) {
    made_.copies.push_back({cuda::address_of(room_.data() + offset), source, size});
  }
  void copy_leaves(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const LeafView leaf = leaf_view(batch_, i);
      if (leaf.device != cpu())
        copy(layout_.offsets[i], cuda::address_of(leaf.data), leaf.size_bytes);
    }
  }
  void gather(const Run& run, cuda::DeviceAddress gathered) {
    for (std::size_t i = run.first; i <= run.last; ++i) {
      const LeafView leaf = leaf_view(batch_, i);
      if (leaf.size_bytes == 0) continue;
      made_.pieces.push_back({gathered + (layout_.offsets[i] - run.begin),
                              cuda::address_of(leaf.data), leaf.size_bytes});
    }
    copy(run.begin, gathered, run.end - run.begin);
  }
  /// Finds the place where runs are gathered. False: there is no room, or no kernel.
  [[nodiscard]] bool find_place(const std::vector<Run>& runs, cuda::Gpu& gpu,
                                cuda::DevicePool& pool, Deadline deadline) {
    std::uint64_t size = 0;
    for (const Run& run : runs) size += room_in_slot(run);
    if (size == 0) return false;
    auto kernel = gpu.gather_kernel().function(earlier(deadline, kGatherPatience));
    if (!kernel) return false;
    auto slot = pool.acquire(size, earlier(deadline, kGatherPatience));
    if (!slot) return false;
    made_.kernel = *kernel;
    made_.slot = *std::move(slot);
    return true;
  }

  [[nodiscard]] cuda::DeviceAddress slot_address() const { return made_.slot->address(); }
  [[nodiscard]] CopiesToHost take() {
    made_.copies = in_pieces(made_.copies);
    return std::move(made_);
  }

 private:
  const TensorDict& batch_;
  const PackedLayout& layout_;
  const Storage& room_;
  CopiesToHost made_;
};

}  // namespace

Result<void> CopiesToHost::gather(cuda::StreamWork& work) const {
  if (pieces.empty()) return {};
  work.keep(slot);
  return work.gather(kernel, pieces);
}

const PackedView* packed_alike(const TensorDict& batch) {
  const PackedView* const packed = packed_view(batch);
  return packed != nullptr && packed->layout == Layout::aligned ? packed : nullptr;
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

CopiesToHost copies_to_host(const TensorDict& batch, const Storage& room, cuda::Gpu& gpu,
                            cuda::DevicePool& pool, Deadline deadline) {
  Plan plan(batch, room);
  if (const PackedView* const packed = packed_alike(batch);
      packed != nullptr && packed->storage.device() != cpu()) {
    plan.copy(0, cuda::address_of(packed->storage.data()),
              batch.schema()->layout(Layout::aligned).total_bytes);
    return plan.take();
  }
  const auto runs = runs_of(batch, batch.schema()->layout(Layout::aligned));
  if (!plan.find_place(runs, gpu, pool, deadline)) {
    plan.copy_leaves(0, batch.leaf_count());
    return plan.take();
  }
  std::size_t next = 0;
  cuda::DeviceAddress gathered = plan.slot_address();
  for (const Run& run : runs) {
    plan.copy_leaves(next, run.first);
    plan.gather(run, gathered);
    gathered += room_in_slot(run);
    next = run.last + 1;
  }
  plan.copy_leaves(next, batch.leaf_count());
  return plan.take();
}

std::vector<GpuCopy> leaf_copies_to_host(const TensorDict& batch, const Storage& room) {
  Plan plan(batch, room);
  plan.copy_leaves(0, batch.leaf_count());
  return plan.take().copies;
}

Result<void> copy_to_host(const TensorDict& batch, const Storage& room, cuda::StreamWork work,
                          cuda::DevicePool& pool, Deadline deadline,
                          const std::function<Result<void>(cuda::StreamWork&)>& wait) {
  TENDON_CHECK(pack_host_leaves(batch, room));
  work.keep(room.owner());
  work.keep(std::make_shared<const TensorDict>(batch));
  TENDON_CHECK(wait(work));  // a copy would wait without a deadline
  const CopiesToHost to_host = copies_to_host(batch, room, work.gpu(), pool, deadline);
  TENDON_CHECK(to_host.gather(work));
  for (const GpuCopy& each : to_host.copies) {
    if (!deadline.is_poll() && deadline.has_passed())
      return Error{ErrorCode::timeout, "staging.copy", "the deadline passed between two copies"};
    TENDON_CHECK(work.copy(each.destination, each.source, each.size_bytes));
  }
  TENDON_CHECK(wait(work));
  zero_gaps(*batch.schema(), room);
  return {};
}

}  // namespace tendon::v0::detail
