// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transport/message.hpp"

namespace tendon::v0::detail {

/// Private memory for the body of a small message (at most kMaxInlineBytes; zero bytes are no
/// body). Blocks come in three sizes, so that a word does not hold 8 KiB, and are used again: a
/// stream in steady state allocates nothing.
[[nodiscard]] IncomingBody make_private_body(std::uint64_t size_bytes);

/// What such a message costs this process while it waits to be taken.
[[nodiscard]] std::uint64_t private_cost_bytes(std::uint64_t size_bytes) noexcept;

/// What they may cost together on one link; at the limit the link is not read any further.
[[nodiscard]] std::uint64_t private_limit_bytes(std::uint64_t cap_bytes) noexcept;

}  // namespace tendon::v0::detail
