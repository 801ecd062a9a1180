// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "transport/message.hpp"

namespace tendon::inline v0::detail {

/// Private memory for the body of a small message (at most kMaxInlineBytes; zero bytes are no
/// body). Blocks come in three sizes, so that a word does not hold 8 KiB, and are used again: a
/// stream in steady state allocates nothing.
[[nodiscard]] IncomingBody make_private_body(std::uint64_t size_bytes);

}  // namespace tendon::inline v0::detail
