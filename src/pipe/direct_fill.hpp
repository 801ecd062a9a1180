// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
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

/// A batch that may stay on its GPU, and how its send waits. If it lies like a loan, it is sent
/// from its place.
struct DirectSource {
  const TensorDict& batch;
  const GpuSource& gpu;
  const PlacedLayout& layout;
  cuda::StreamHandle stream;
  const std::shared_ptr<ContextCore>& context;
  Link& link;
  std::function<Result<void>()> usable;
  /// True if an earlier queued send waits for room. A direct-only send takes none then.
  std::function<bool()> is_behind_held;

  [[nodiscard]] bool is_direct_only() const noexcept;
};

/// A fill, or the reason why there is none. `not_direct` (the peer cannot read there) and
/// `message_too_large` are permanent. `resource_exhausted` (the pool has no slot, or the peer has
/// used its share) and `timeout` may pass.
struct DirectTry {
  std::shared_ptr<DeviceFill> fill;
  std::optional<Error> why;

  [[nodiscard]] bool may_be_later() const {
    return why->code == ErrorCode::resource_exhausted || why->code == ErrorCode::timeout;
  }
};

/// Why it can never stay on its GPU: `not_direct`, `message_too_large`. Empty: it may.
[[nodiscard]] std::optional<Error> why_never_direct(const DirectSource& source);

/// Enqueues the copies of its leaves on the GPU into a slot there, which the peer may read. Waits
/// at first for the peer's answer, as calls of a pipe do, unless the deadline is a poll. Errors:
/// timeout; that of `usable`; those of the driver.
[[nodiscard]] Result<DirectTry> try_direct(const DirectSource& source, Deadline deadline);

/// The same. Null: it travels through host memory. With DevicePath::direct_only it waits until the
/// pool has room for it, and for earlier sends, and returns an error instead of null.
[[nodiscard]] Result<std::shared_ptr<DeviceFill>> direct_fill(const DirectSource& source,
                                                              Deadline deadline);

/// See Pipe::device_paths().
[[nodiscard]] std::vector<PathOfDevice> paths_of_devices(const Link& link, DevicePath path);

}  // namespace tendon::v0::detail
