// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tendon/memory/device.hpp>
#include <tendon/memory/recv_mode.hpp>

namespace tendon {
inline namespace v0 {

/// The stream of CUDA that each thread has by default: cudaStreamPerThread.
inline void* const kStreamPerThread = reinterpret_cast<void*>(2);

/// A stream of CUDA, a cudaStream_t, in whose order something is done.
struct OnStream {
  void* stream = kStreamPerThread;
};

/// Where a receive is to put tensors.
///
///   Sample sample = frames.recv({.device = Device{DeviceKind::cuda, 0}}, 1s).value();
struct DeviceTarget {
  /// Where all leaves are to lie; nothing: where they are.
  std::optional<Device> device = {};
  /// Leaves on a GPU are there in the order of this stream, a cudaStream_t: work that it gets later
  /// reads them. It lives until the last tensor is dropped.
  void* stream = kStreamPerThread;
  /// May leaves on a GPU stay in the publisher's memory? At most eight samples of a publisher do,
  /// to be read only: a kernel that writes there ends the CUDA of this process.
  RecvMode device_mode = RecvMode::view_or_copy;
};

}  // namespace v0
}  // namespace tendon
