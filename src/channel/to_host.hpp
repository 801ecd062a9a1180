// SPDX-License-Identifier: Apache-2.0
// Copies a batch on a GPU to host memory, for a message that travels through it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "cuda/device_pool.hpp"
#include "cuda/gather_table.hpp"
#include "cuda/gpu.hpp"
#include "cuda/stream_work.hpp"

namespace tendon::v0::detail {

/// Leaves of this size or more are not gathered: a copy of one costs little beside its bytes.
inline constexpr std::uint64_t kLargeLeafBytes = std::uint64_t{64} << 10;
/// The longest wait for the kernel or its slot; without them each leaf is copied.
inline constexpr std::chrono::milliseconds kGatherPatience{20};

/// One copy for the GPU, small enough for a look at a deadline, or at other work, after each.
struct GpuCopy {
  cuda::DeviceAddress destination = 0;
  cuda::DeviceAddress source = 0;
  std::uint64_t size_bytes = 0;
};

/// The packed view of a batch that lies in one piece as by Layout::aligned; null: it does not.
[[nodiscard]] const PackedView* packed_alike(const TensorDict& batch);

/// Cuts large copies into pieces, which the device thread makes one after the other.
[[nodiscard]] std::vector<GpuCopy> in_pieces(const std::vector<GpuCopy>& copies);

/// Small leaves that lie side by side in the message are gathered on the GPU, in a slot, and copied
/// together. Others are copied one by one.
struct CopiesToHost {
  cuda::FunctionHandle kernel = nullptr;  ///< with pieces
  std::vector<cuda::GatherEntry> pieces{};
  std::shared_ptr<cuda::DeviceSlot> slot{};  ///< where they are gathered
  std::vector<GpuCopy> copies{};             ///< after the gathering, on the same stream

  /// Enqueues the gathering; the slot is kept until the GPU has read it.
  [[nodiscard]] Result<void> gather(cuda::StreamWork& work) const;
};

/// The copies that pack the leaves on the GPU into `room`, by Layout::aligned. The driver blocks in
/// one until the stream's earlier work is done, because `room` is not registered. If a slot of
/// `pool` or the kernel is missing within kGatherPatience and before the deadline, all leaves are
/// copied one by one. Not in the device thread.
[[nodiscard]] CopiesToHost copies_to_host(const TensorDict& batch, const Storage& room,
                                          cuda::Gpu& gpu, cuda::DevicePool& pool,
                                          Deadline deadline);

/// The same, leaf by leaf: for the device thread too.
[[nodiscard]] std::vector<GpuCopy> leaf_copies_to_host(const TensorDict& batch,
                                                       const Storage& room);

/// Copies the batch, and returns when it lies in `room`. `work` keeps both until the GPU is done,
/// also after a failure. `wait` waits for the stream, until the same deadline. Errors: timeout,
/// those of `wait` and of the driver.
[[nodiscard]] Result<void> copy_to_host(const TensorDict& batch, const Storage& room,
                                        cuda::StreamWork work, cuda::DevicePool& pool,
                                        Deadline deadline,
                                        const std::function<Result<void>(cuda::StreamWork&)>& wait);

}  // namespace tendon::v0::detail
