// SPDX-License-Identifier: Apache-2.0
// The way of a batch on a GPU to host memory, for a message that travels through it.
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

/// Leaves from here on are not gathered: a copy of one costs little beside its bytes.
inline constexpr std::uint64_t kLargeLeafBytes = std::uint64_t{64} << 10;
/// The longest wait for the kernel or its slot, without which each leaf is a copy.
inline constexpr std::chrono::milliseconds kGatherPatience{20};

/// One copy for the GPU. It is small enough to look at a deadline, or at other work, after each.
struct GpuCopy {
  cuda::DeviceAddress destination = 0;
  cuda::DeviceAddress source = 0;
  std::uint64_t size_bytes = 0;
};

/// A batch that lies in one piece as Layout::aligned has it; null: it does not.
[[nodiscard]] const PackedView* packed_alike(const TensorDict& batch);

/// Large copies in pieces, of which the device thread makes one after the other.
[[nodiscard]] std::vector<GpuCopy> in_pieces(const std::vector<GpuCopy>& copies);

/// Small leaves that lie side by side in the message are gathered on the GPU, in a slot, and
/// copied at once. Others are copied one by one.
struct CopiesToHost {
  cuda::FunctionHandle kernel = nullptr;  ///< with pieces
  std::vector<cuda::GatherEntry> pieces{};
  std::shared_ptr<cuda::DeviceSlot> slot{};  ///< where they are gathered
  std::vector<GpuCopy> copies{};             ///< behind that, on the same stream

  /// Enqueues it; the slot is kept until the GPU has read it.
  [[nodiscard]] Result<void> gather(cuda::StreamWork& work) const;
};

/// The copies that pack the leaves on the GPU into `room`, by Layout::aligned. The driver blocks in
/// one for what the stream has to do before, because `room` is not registered. Without a slot of
/// `pool`, or without the kernel, within kGatherPatience and before the deadline, all leaves are
/// copied one by one. Not in the device thread.
[[nodiscard]] CopiesToHost copies_to_host(const TensorDict& batch, const Storage& room,
                                          cuda::Gpu& gpu, cuda::DevicePool& pool,
                                          Deadline deadline);

/// The same, leaf by leaf: for the device thread too.
[[nodiscard]] std::vector<GpuCopy> leaf_copies_to_host(const TensorDict& batch,
                                                       const Storage& room);

/// The whole way: returns when the batch lies in `room`. Until the GPU is done, `work` keeps both,
/// also where this fails. `wait` waits for the stream, until the same deadline. Errors: timeout,
/// those of `wait` and of the driver.
[[nodiscard]] Result<void> copy_to_host(const TensorDict& batch, const Storage& room,
                                        cuda::StreamWork work, cuda::DevicePool& pool,
                                        Deadline deadline,
                                        const std::function<Result<void>(cuda::StreamWork&)>& wait);

}  // namespace tendon::v0::detail
