// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "cuda/device_thread.hpp"
#include "cuda/driver.hpp"
#include "cuda/gpu.hpp"

namespace tendon::v0::detail::cuda {

/// The GPUs that this process uses. Each stays in use to the end of the process, so its primary
/// context exists even if a framework releases its own reference.
///
/// Owns:    shares of the GPUs, from their first use on.
/// Threads: thread-safe; short locks, under which no call of the driver is made.
/// Errors:  unsupported_device: no such GPU; device_lost; timeout; forked; those of
///          Driver::initialise().
/// Blocks:  at the first use of a GPU for the device thread, once some 200 ms, until the deadline.
///          A GPU that is ready later is there for the next call.
/// Cost:    afterwards a lock; find() one call of the driver more.
class TENDON_API Gpus {
 public:
  Gpus(Driver& driver, DeviceThread& thread);
  Gpus(const Gpus&) = delete;
  Gpus& operator=(const Gpus&) = delete;
  ~Gpus();

  /// The GPU that the driver numbers `ordinal`. It makes the process use CUDA.
  [[nodiscard]] Result<std::shared_ptr<Gpu>> use(int ordinal, Deadline deadline);
  /// The GPU that a peer names, in use from then on. It does not make a process use CUDA: that is
  /// unsupported_device, as is a UUID that no GPU here has.
  [[nodiscard]] Result<std::shared_ptr<Gpu>> find(const Uuid& uuid, Deadline deadline);
  /// The same, if it is in use already; else null. No call of the driver.
  [[nodiscard]] std::shared_ptr<Gpu> find_used(const Uuid& uuid);

 private:
  /// Jobs of the device thread share it: a late one finds it.
  struct Table {
    Mutex mutex;
    std::map<int, std::shared_ptr<Gpu>> used TENDON_GUARDED_BY(mutex);
    std::vector<Uuid> uuids TENDON_GUARDED_BY(mutex);  // by ordinal; empty: not read yet
    [[nodiscard]] std::shared_ptr<Gpu> find(int ordinal) TENDON_EXCLUDES(mutex);
  };

  /// The UUIDs of all GPUs here. Precondition: the process uses CUDA.
  [[nodiscard]] Result<std::vector<Uuid>> uuids();
  [[nodiscard]] Result<std::vector<Uuid>> read_uuids() const;

  Driver& driver_;
  DeviceThread& thread_;
  const std::shared_ptr<Table> table_;
};

/// The GPUs of this process, by the driver that the environment chooses.
[[nodiscard]] TENDON_API Result<Gpus*> process_gpus();
/// The GPU with this UUID, if this process uses it already; else null. No call of the driver.
[[nodiscard]] TENDON_API std::shared_ptr<Gpu> find_used_gpu(const Uuid& uuid);
/// Checks that this process uses CUDA, so that a peer's tensors may lie on `wanted`; loads nothing.
/// The error of Gpus::find() says what to do.
[[nodiscard]] TENDON_API Result<void> check_in_use(const Uuid& wanted);
/// Gpus::find() of this process; it does not load the driver either.
[[nodiscard]] TENDON_API Result<std::shared_ptr<Gpu>> find_process_gpu(const Uuid& uuid,
                                                                       Deadline deadline);

}  // namespace tendon::v0::detail::cuda
