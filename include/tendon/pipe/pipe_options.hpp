// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tendon/memory/device_target.hpp>
#include <tendon/memory/recv_mode.hpp>

namespace tendon {
inline namespace v0 {

/// How a batch is sent. Batches in host memory need none of it.
///
///   pipe.send(batch, 1s, {.stream = stream});  // a cudaStream_t, of the GPU of the tensors
struct SendOptions {
  /// Tensors on a GPU are read behind the work that this stream has. It is not to be captured, and
  /// lives until flush() has returned.
  void* stream = kStreamPerThread;
};

/// How a batch is received, and where it is to lie.
///
///   TensorDict batch = pipe.recv({.device = Device{DeviceKind::cuda, 0}}, 1s).value();
struct RecvOptions {
  RecvMode mode = RecvMode::view_or_copy;
  /// May leaves on a GPU stay in the sender's memory? At most eight batches of a pipe do, to be
  /// read only: a kernel that writes there ends the CUDA of this process. `copy`: they do not, nor
  /// do those of asynchronous receives.
  RecvMode device_mode = RecvMode::view_or_copy;
  /// Where all leaves are to lie. Without it each lies where the sender had it: in host memory, or
  /// on the same GPU.
  std::optional<Device> device = {};
  /// Leaves on a GPU are there in the order of this stream: work that it gets later reads them. It
  /// lives until the last tensor of the batch is dropped.
  void* stream = kStreamPerThread;
};

}  // namespace v0
}  // namespace tendon
