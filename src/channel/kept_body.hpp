// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <vector>

#include "channel/sample_channel.hpp"

namespace tendon::v0::detail {

/// Acquires a slot of the publish pool; null: the body lies in private memory instead. If memory is
/// short, its caller decides what to release.
using AcquireSlot =
    std::function<Result<std::shared_ptr<const PublishedSlot>>(std::uint64_t size_bytes)>;

/// A message as it is kept for all its readers. Once it was shown to one, it does not change.
///
/// Owns:    its body: a slot of the publish pool or, when the body is small, memory of its own.
/// Threads: none of its own.
/// Errors:  those of `acquire` and of JSON.
/// Blocks:  never.
/// Cost:    pack(): one copy of the tensors.
struct KeptBody {
  SharedMessage message;           ///< its body is the vector below, or lies in its slot
  std::vector<std::byte> inlined;  ///< the body, without a slot

  /// Makes memory for the body that `what` describes, and for a header at its end.
  [[nodiscard]] Result<void> make_room(SharedMessage what, std::uint16_t header_bytes,
                                       const AcquireSlot& acquire);
  /// The same for a TensorDict: contains its values, but not yet the tensors.
  [[nodiscard]] Result<void> make_room(const TensorDict& tensors, std::uint16_t header_bytes,
                                       const AcquireSlot& acquire);
  /// The same with the tensors, which must lie in host memory.
  [[nodiscard]] Result<void> pack(const TensorDict& tensors, std::uint16_t header_bytes,
                                  const AcquireSlot& acquire);
  /// The memory to be filled before any reader sees it.
  [[nodiscard]] MutableBytes memory();
  /// The last part of memory().
  [[nodiscard]] MutableBytes header_room() {
    return memory().last(message.descriptor.header_bytes);
  }
};

}  // namespace tendon::v0::detail
