// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tendon/memory/device.hpp>
#include <tendon/memory/recv_mode.hpp>

namespace tendon {
inline namespace v0 {

/// CUDA's default stream of each thread: cudaStreamPerThread.
inline void* const kStreamPerThread = reinterpret_cast<void*>(2);

/// The stream of CUDA, a cudaStream_t, in whose order something is done.
struct OnStream {
  void* stream = kStreamPerThread;
};

/// The place where a receive puts tensors.
///
///   Sample sample = frames.recv({.device = Device{DeviceKind::cuda, 0}}, 1s).value();
struct DeviceTarget {
  /// The place of all leaves; empty: they stay where they are.
  std::optional<Device> device = {};
  /// Leaves on a GPU are ready in the order of this stream, a cudaStream_t: work that it gets later
  /// may read them. The stream must live until the last tensor is dropped.
  void* stream = kStreamPerThread;
  /// Whether leaves on a GPU may stay in the publisher's memory. At most eight samples of a
  /// publisher do, to be read only: a kernel that writes there ends the CUDA of this process.
  RecvMode device_mode = RecvMode::view_or_copy;
};

}  // namespace v0
}  // namespace tendon
