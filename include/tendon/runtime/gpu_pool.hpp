// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/device.hpp>
#include <tendon/memory/device_target.hpp>
#include <tendon/memory/pool.hpp>
#include <tendon/memory/storage.hpp>
#include <utility>
#include <vector>

namespace tendon {
inline namespace v0 {

class Context;

namespace detail {
class ContextCore;
namespace cuda {
class DevicePool;
class Gpu;
}  // namespace cuda
}  // namespace detail

/// The state of a pool on a GPU at this moment.
struct GpuPoolSummary {
  Device device;
  std::uint64_t cap_bytes = 0;       ///< a limit, not an allocation
  std::uint64_t resident_bytes = 0;  ///< of the GPU, in all segments
  std::uint64_t segment_count = 0;
  std::uint64_t used_bytes = 0;       ///< of slots that this process or a peer holds
  std::vector<PoolHolder> holders{};  ///< peers that hold some

  [[nodiscard]] TENDON_API std::string to_string() const;
};

/// Memory on a GPU that peers of a Context read without a copy: the pool of its loans and of
/// batches that are sent from there. A loan is simpler for a batch of one schema that is filled
/// once.
///
/// Example:
///   GpuPool pool = context.pool(Device{DeviceKind::cuda, 0}, 5s).value();
///   Storage memory = pool.allocate(4 << 20, 1s).value();
///   // A kernel writes at memory.data(), on the stream of the send.
///   TensorDict batch;
///   batch.set("image", Tensor::view(memory.read_only(), 0, DType::f32, {1 << 20}).value());
///   pipe.send(batch, 1s).value();  // no copy, to any number of pipes
///
/// A batch is sent or published without a copy if its leaves on a GPU lie in one such memory,
/// packed as Layout::aligned does, and are `read_only()`. With read_only() the program promises
/// that nothing writes there any more. Memory that it may still write is copied, as that of any
/// batch.
///
/// A peer of this host that was sent memory of the pool can reach the pool's other memory. Put
/// nothing there that is not meant for these peers.
///
/// Owns:    a share of the pool; memory that was taken from it outlives it and the Context.
/// Threads: safe everywhere.
/// Errors:  resource_exhausted (bytes, and who holds most), message_too_large, device_lost,
///          invalid_argument for a stream of another GPU or one that is being captured, timeout,
///          context_closed, forked.
/// Blocks:  allocate(): until there is room, or the deadline.
/// Cost:    allocate(): calls of the driver that ask about the stream, a look at the returned slots
///          of each link, short locks; about 1 ms where the GPU has no segment for that size yet.
class TENDON_API GpuPool {
 public:
  /// Takes `size_bytes`, contents unspecified, aligned to 256 bytes. They return to the pool when
  /// no peer has them any more and the GPU has done the awaited work. That is the work that the
  /// stream of `on` had when the last share here was dropped. The stream must live until that drop.
  [[nodiscard]] Result<Storage> allocate(std::uint64_t size_bytes, Deadline deadline,
                                         const OnStream& on = {});
  [[nodiscard]] GpuPoolSummary summary() const;

 private:
  friend class Context;
  GpuPool(std::weak_ptr<detail::ContextCore> context, std::shared_ptr<detail::cuda::Gpu> gpu,
          std::shared_ptr<detail::cuda::DevicePool> slots)
      : context_(std::move(context)), gpu_(std::move(gpu)), slots_(std::move(slots)) {}

  std::weak_ptr<detail::ContextCore> context_;
  std::shared_ptr<detail::cuda::Gpu> gpu_;
  std::shared_ptr<detail::cuda::DevicePool> slots_;
};

}  // namespace v0
}  // namespace tendon
