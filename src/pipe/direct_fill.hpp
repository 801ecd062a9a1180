// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/pipe/path_of_device.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "channel/placed_layout.hpp"
#include "cuda/loaned_device_slot.hpp"
#include "pipe/gpu_source.hpp"
#include "runtime/context_core.hpp"
#include "transport/shm/device_fill.hpp"

namespace tendon::v0::detail {

/// A batch that may stay on its GPU, and how its send waits. Where it lies as a loan does, it is
/// sent from there.
struct DirectSource {
  const TensorDict& batch;
  const GpuSource& gpu;
  const PlacedLayout& layout;
  cuda::StreamHandle stream;
  const std::shared_ptr<ContextCore>& context;
  Link& link;
  std::function<Result<void>()> usable;
  /// The loan that is sent with it, if any.
  std::shared_ptr<cuda::LoanedDeviceSlot> loan = nullptr;
};

/// Enqueues the copies of its leaves on the GPU into a slot there, which the peer may read. Null:
/// it travels through host memory, because the peer cannot read there, has its share of the pool,
/// or the pool has no slot; also where that has to be waited for and the deadline is a poll. Waits
/// at first for the peer's answer, as calls of a pipe do. Errors: timeout; that of `usable`; those
/// of the driver.
[[nodiscard]] Result<std::shared_ptr<DeviceFill>> direct_fill(const DirectSource& source,
                                                              Deadline deadline);

/// See Pipe::device_paths().
[[nodiscard]] std::vector<PathOfDevice> paths_of_devices(const Link& link, DevicePath path);

}  // namespace tendon::v0::detail
