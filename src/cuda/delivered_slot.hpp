// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cuda/gpu.hpp"
#include "cuda/stream_name.hpp"

namespace tendon::v0::detail::cuda {

/// The owner of memory that the program reads on a GPU, after it was delivered on `stream`, which
/// is there when the last share is dropped.
///
/// Owns:    a share of the memory, until the GPU has done all that the stream has when the last
///          share is dropped. The device thread drops it.
/// Threads: the last share may be dropped in any thread. Another than that of delivery has no name
///          for kPerThreadStream: there the slot waits behind the legacy stream, and so for all
///          blocking ones.
/// Errors:  none. In a lost context the slot is dropped; in a forked child, at once.
/// Blocks:  never.
/// Cost:    about 2 us at the end, for an event; the device thread looks at it.
///
/// A stream that is being captured at that time is not touched: the device thread looks whether the
/// capture is over, at most once in a millisecond, and the slot waits behind the stream from then
/// on. A graph that reads the slot has a share of its own.
[[nodiscard]] std::shared_ptr<const void> deliver(std::shared_ptr<Gpu> gpu,
                                                  std::shared_ptr<const void> memory,
                                                  StreamName stream);

}  // namespace tendon::v0::detail::cuda
