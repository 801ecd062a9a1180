// SPDX-License-Identifier: Apache-2.0
// One TensorDict for several pipes of a Context, copied once.
#pragma once

#include <memory>
#include <tendon/core/completion.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::v0::detail {

struct KeptBody;

/// message_too_large if this pipe carries no message of that size; checked before it is copied.
[[nodiscard]] TENDON_API Result<void> check_for_many(const Pipe& pipe, const TensorDict& tensors);

/// Copies the tensors into a slot of the publish pool of the pipe's Context, or into private memory
/// when they are small or the pool has no slot for them. The caller's tensors may change then.
/// Cost: one copy. Errors: unsupported_device.
[[nodiscard]] TENDON_API Result<std::shared_ptr<const KeptBody>> keep_for_many(
    const Pipe& pipe, const TensorDict& tensors);

/// Sends a body of keep_for_many(), made for any pipe of the same Context, as Pipe::send_async(). A
/// peer that shares memory reads it in place, and may not write it; any other gets a copy. The slot
/// is free again when all peers have dropped their views.
[[nodiscard]] TENDON_API Completion<void> send_kept_async(const Pipe& pipe,
                                                          std::shared_ptr<const KeptBody> kept);

}  // namespace tendon::v0::detail
