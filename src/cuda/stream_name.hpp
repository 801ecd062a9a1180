// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cuda/driver_table.hpp"

namespace tendon::v0::detail::cuda {

/// A stream as one thread names it. kPerThreadStream names another stream in each thread. In others
/// the legacy stream therefore represents it, which waits for all blocking streams.
///
/// Owns:    nothing: the program keeps the stream for as long as it is named.
/// Threads: a value, which threads may pass on.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    none.
class StreamName {
 public:
  /// `handle` is the calling thread's name of it.
  StreamName(StreamHandle handle);

  /// The calling thread's name of it. An event that is recorded on it is behind all work of the
  /// stream.
  [[nodiscard]] StreamHandle here() const;
  /// True if the legacy stream represents it here. Synchronising that, without an event, waits only
  /// for its own work.
  [[nodiscard]] bool is_replaced_here() const;

 private:
  StreamHandle handle_;
  std::uint64_t thread_;  // that named it
};

/// Answers `success` for a stream that is not being captured, and `not_ready` for one that is. The
/// legacy stream counts as captured while any blocking stream is. Any other answer is the driver's
/// error. The context is current; the call breaks no capture.
[[nodiscard]] Status look_at_capture(const DriverTable& table, StreamHandle stream);

}  // namespace tendon::v0::detail::cuda
