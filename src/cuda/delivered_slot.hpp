// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cuda/gpu.hpp"
#include "cuda/stream_name.hpp"

namespace tendon::v0::detail::cuda {

/// Makes the owner of memory that the program reads on a GPU, after delivery on `stream`. The
/// stream must exist when the last share is dropped.
///
/// Owns:    a share of the memory, until the GPU has done all work that the stream has when the
///          last share is dropped. The device thread drops it.
/// Threads: the last share may be dropped in any thread. Only the thread of delivery has a name for
///          kPerThreadStream: in others the slot waits behind the legacy stream, and so for all
///          blocking ones.
/// Errors:  none. In a lost context the slot is dropped; in a forked child, at once.
/// Blocks:  never.
/// Cost:    about 2 us at the end, for an event; the device thread polls it.
///
/// A stream that is being captured at that time is not touched. The device thread checks at most
/// once in a millisecond whether the capture has ended, and the slot waits behind the stream from
/// then on. A graph that reads the slot has its own share.
[[nodiscard]] std::shared_ptr<const void> deliver(std::shared_ptr<Gpu> gpu,
                                                  std::shared_ptr<const void> memory,
                                                  StreamName stream);

}  // namespace tendon::v0::detail::cuda
