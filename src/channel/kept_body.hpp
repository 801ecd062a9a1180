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

/// A slot of the publish pool; null: the body lies in private memory instead. What is given up for
/// a slot when memory is short is its caller's matter.
using AcquireSlot =
    std::function<Result<std::shared_ptr<const PublishedSlot>>(std::uint64_t size_bytes)>;

/// A message as it is kept for all peers that are to see it. Once it was shown to one, it does not
/// change.
///
/// Owns:    its body: a slot of the publish pool or, when the body is small, memory of its own.
/// Threads: none of its own.
/// Errors:  those of `acquire` and of JSON.
/// Blocks:  never.
/// Cost:    pack(): one copy of the tensors.
struct KeptBody {
  SharedMessage message;           ///< its body is all that follows, or lies in its slot
  std::vector<std::byte> inlined;  ///< the body, without a slot

  /// Memory for the body that `what` describes, and for a header at its end.
  [[nodiscard]] Result<void> make_room(SharedMessage what, std::uint16_t header_bytes,
                                       const AcquireSlot& acquire);
  /// The same for a TensorDict: its values are in it then, the tensors are not.
  [[nodiscard]] Result<void> make_room(const TensorDict& tensors, std::uint16_t header_bytes,
                                       const AcquireSlot& acquire);
  /// The same with the tensors, which lie in host memory.
  [[nodiscard]] Result<void> pack(const TensorDict& tensors, std::uint16_t header_bytes,
                                  const AcquireSlot& acquire);
  /// To be filled before anybody sees it.
  [[nodiscard]] MutableBytes memory();
  /// The last part of memory().
  [[nodiscard]] MutableBytes header_room() {
    return memory().last(message.descriptor.header_bytes);
  }
};

}  // namespace tendon::v0::detail
