// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tendon/memory/device_target.hpp>
#include <tendon/memory/recv_mode.hpp>

namespace tendon {
inline namespace v0 {

/// How a batch is sent. Batches in host memory need none of these options.
///
///   pipe.send(batch, 1s, {.stream = stream});  // a cudaStream_t, of the GPU of the tensors
struct SendOptions {
  /// Tensors on a GPU are read after the work that this stream has now. The stream must not be
  /// under capture, and must live until flush() has returned.
  void* stream = kStreamPerThread;
};

/// How a batch is received, and where it shall lie.
///
///   TensorDict batch = pipe.recv({.device = Device{DeviceKind::cuda, 0}}, 1s).value();
struct RecvOptions {
  RecvMode mode = RecvMode::view_or_copy;
  /// Whether leaves on a GPU may stay in the sender's memory. At most eight batches of a pipe do,
  /// to be read only: a kernel that writes there ends the CUDA of this process. With `copy`, and in
  /// asynchronous receives, none does.
  RecvMode device_mode = RecvMode::view_or_copy;
  /// The place of all leaves. Without it each lies as at the sender: in host memory, or on the same
  /// GPU.
  std::optional<Device> device = {};
  /// Leaves on a GPU are ready in the order of this stream: work that it gets later may read them.
  /// The stream must live until the last tensor of the batch is dropped.
  void* stream = kStreamPerThread;
};

}  // namespace v0
}  // namespace tendon
