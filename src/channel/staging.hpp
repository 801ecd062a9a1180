// SPDX-License-Identifier: Apache-2.0
// Batches between host memory and a GPU: the copies of messages that travel through host memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>

#include "channel/placement.hpp"
#include "channel/to_host.hpp"
#include "cuda/device_pool.hpp"
#include "cuda/gpu.hpp"
#include "cuda/stream_work.hpp"

namespace tendon::v0::detail {

/// The GPU that has leaves of this batch; empty: all lie in host memory. Errors: unsupported_device
/// for leaves of two GPUs or of another kind of device, not_contiguous for leaves on a GPU that
/// have gaps.
[[nodiscard]] Result<std::optional<Device>> gpu_of(const TensorDict& batch, std::string_view where);

/// True if a receive wants its tensors on a GPU. Errors: unsupported_device for another kind of
/// device.
[[nodiscard]] Result<bool> wants_gpu(const std::optional<Device>& device, std::string_view where);
/// The GPU on which a receive wants its tensors; null: none. It is initialised before anything is
/// taken. Errors: those of wants_gpu() and of Gpus::use().
[[nodiscard]] Result<std::shared_ptr<cuda::Gpu>> wanted_gpu(const std::optional<Device>& device,
                                                            std::string_view where,
                                                            Deadline deadline);
/// True if all leaves lie there.
[[nodiscard]] bool lies_on(const TensorDict& batch, Device device);

/// The placement of a batch, for a peer that knows the GPU by `number`.
[[nodiscard]] std::shared_ptr<const Placement> placement_of(const TensorDict& batch,
                                                            const cuda::Uuid& gpu,
                                                            std::uint32_t number);

/// Packs the leaves of host memory into `room`, by Layout::aligned.
[[nodiscard]] Result<void> pack_host_leaves(const TensorDict& batch, const Storage& room);

/// Clears the gaps after the copies, so that no earlier contents of the room leak.
void zero_gaps(const Schema& schema, const Storage& room);

/// Bytes of the leaves on the GPU.
[[nodiscard]] std::uint64_t bytes_on_gpu(const Schema& schema, const Placement* placement);

/// Copies a batch into existing leaves of the same schema, in host memory or on the GPU of `work`,
/// where they must have no gaps. No leaf is copied from a GPU to host memory. `work` keeps the
/// memory of both.
[[nodiscard]] Result<void> copy_into_leaves(const TensorDict& batch, const TensorDict& destination,
                                            cuda::StreamWork& work);

/// The GPU on which a batch is wanted, and the stream that orders it.
struct GpuTarget {
  std::shared_ptr<cuda::Gpu> gpu;
  std::shared_ptr<cuda::DevicePool> pool;
  cuda::StreamName stream = nullptr;
  const Placement* placement = nullptr;  ///< the wanted leaves; null: all
};

/// Returns the batch to be copied to `device`, without gaps between elements. Errors:
/// unsupported_device for leaves on another GPU.
[[nodiscard]] Result<TensorDict> source_of(const TensorDict& batch, Device device,
                                           std::string_view where);

/// A batch with the wanted leaves on a GPU, once `copies` are made. They need the memory of the
/// source and the slot until then.
struct GpuArrival {
  TensorDict batch;
  std::shared_ptr<cuda::DeviceSlot> slot;
  std::vector<GpuCopy> copies;
};
/// `source` is the result of source_of(). Each leaf is aligned to 64 bytes or more. Errors: those
/// of the pool.
[[nodiscard]] Result<GpuArrival> arrival_of(const TensorDict& source, const GpuTarget& target,
                                            Deadline deadline);

/// The same, with the copies enqueued; they keep the memory of the batch until they are done.
/// Errors: those of both, and of the driver; the batch stays as it was.
[[nodiscard]] Result<TensorDict> copy_to_gpu(const TensorDict& batch, const GpuTarget& target,
                                             std::string_view where, Deadline deadline);

}  // namespace tendon::v0::detail
