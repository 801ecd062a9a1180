// SPDX-License-Identifier: Apache-2.0
// Reading a message that was taken out of a pipe. What fails here is consumed: no other try can
// read it, and the next one can be received.
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

/// Its schema is known, and its payload has the length that it says.
[[nodiscard]] Result<void> check_schema(const Taken& taken, const Link& link);
/// Its non-tensor data; null: it has none.
[[nodiscard]] Result<std::shared_ptr<const Value>> read_values(const Taken& taken,
                                                               const Link& link);
/// A copy of memory that belongs to somebody else.
[[nodiscard]] Result<Storage> copy_out(const std::byte* data, std::uint64_t size_bytes);

/// A packed batch in memory of this process.
[[nodiscard]] Result<TensorDict> private_copy(const TensorDict& batch);

/// Its GPU is lost to this process. Precondition: taken.is_direct().
[[nodiscard]] bool is_lost(const Taken& taken);
/// It is as it was at the head, for another try to deliver it.
[[nodiscard]] PutBack untaken(Taken& taken);

/// One whose tensors lie on a GPU in memory of the peer. Precondition: taken.is_direct().
[[nodiscard]] Result<DirectMessage> read_direct(const Taken& taken, const Link& link);

}  // namespace tendon::v0::detail
