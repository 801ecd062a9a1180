// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <tendon/core/bytes.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

#include "core/text.hpp"

namespace tendon::v0::detail {

/// 128 bits that cannot be guessed, or the boot id; all zero means "none".
using Nonce128 = std::array<std::byte, 16>;

[[nodiscard]] inline bool is_none(const Nonce128& token) { return token == Nonce128{}; }
/// Fresh random bytes from the kernel; never all zero.
[[nodiscard]] TENDON_API Result<Nonce128> random_nonce();

}  // namespace tendon::v0::detail
