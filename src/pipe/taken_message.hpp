// SPDX-License-Identifier: Apache-2.0
// Reads a message that was taken from a pipe. A message that fails here is consumed: no other try
// can read it, and the next one can be received.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <tendon/core/result.hpp>

#include "channel/direct_batch.hpp"
#include "pipe/pipe_messages.hpp"
#include "transport/link.hpp"

namespace tendon::v0::detail {

[[nodiscard]] Error unreadable(const Link& link, std::string_view why,
                               ErrorCode code = ErrorCode::corrupt_data);

/// Checks that its schema is known, and that its payload has the stated length.
[[nodiscard]] Result<void> check_schema(const Taken& taken, const Link& link);
/// Its non-tensor data; null: it has none.
[[nodiscard]] Result<std::shared_ptr<const Value>> read_values(const Taken& taken,
                                                               const Link& link);
/// Copies memory that belongs to another owner.
[[nodiscard]] Result<Storage> copy_out(const std::byte* data, std::uint64_t size_bytes);

/// Copies a packed batch to memory of this process.
[[nodiscard]] Result<TensorDict> private_copy(const TensorDict& batch);

/// True if its GPU is lost to this process. Precondition: taken.is_direct().
[[nodiscard]] bool is_lost(const Taken& taken);
/// Makes it as it was at the head, for another try to deliver it.
[[nodiscard]] PutBack untaken(Taken& taken);

/// Reads a message whose tensors lie on a GPU in memory of the peer. Precondition:
/// taken.is_direct().
[[nodiscard]] Result<DirectMessage> read_direct(const Taken& taken, const Link& link);

}  // namespace tendon::v0::detail
