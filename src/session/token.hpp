// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>

namespace tendon::v0::detail {

/// 128 bits nobody can guess, or the boot id; all zero means "none".
using Token = std::array<std::byte, 16>;

[[nodiscard]] inline bool is_none(const Token& token) { return token == Token{}; }
/// Lower-case hexadecimal, two digits a byte.
[[nodiscard]] std::string to_hex(Bytes bytes);
/// Fresh random bytes from the kernel; never all zero.
[[nodiscard]] Result<Token> random_token();

}  // namespace tendon::v0::detail
