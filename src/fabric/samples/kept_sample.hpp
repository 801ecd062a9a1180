// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "channel/kept_body.hpp"
#include "cuda/gpu.hpp"
#include "fabric/samples/sample_header.hpp"

namespace tendon::v0::detail {

/// A sample in place on a GPU, for readers that read it there.
///
///   none -> under way   a reader that arrived after publish() needs it in host memory
///        -> here        the copy is in `staged`
///        -> none        there was no memory for it: it is tried again, while the sample is kept
///        -> failed      nobody gets it there
struct SampleOnGpu {
  SharedMessage message;        ///< its payload has the leaves of host memory
  std::vector<std::byte> body;  ///< of `message`
  std::shared_ptr<cuda::Gpu> gpu;

  // Under the publisher's lock
  enum class Staged : std::uint8_t { none, under_way, here, failed };
  Staged state = Staged::none;
  std::shared_ptr<const KeptBody> staged;
};

/// A sample as it is kept for its readers.
struct KeptSample : KeptBody {
  SampleHeader header;                  ///< the same as at the end of each body
  std::shared_ptr<SampleOnGpu> on_gpu;  ///< null: it exists only in host memory
  bool has_body = true;                 ///< false: `message` describes it, and `on_gpu` has it

  /// The message in host memory. Null: it is not there.
  [[nodiscard]] const SharedMessage* in_host_memory() const noexcept {
    if (has_body) return &message;
    return on_gpu->staged == nullptr ? nullptr : &on_gpu->staged->message;
  }
  /// True if that takes a slot of the publish pool.
  [[nodiscard]] bool has_slot() const noexcept {
    const SharedMessage* const here = in_host_memory();
    return here != nullptr && here->slot != nullptr;
  }
};

}  // namespace tendon::v0::detail
