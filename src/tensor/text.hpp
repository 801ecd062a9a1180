// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace tendon::inline v0::detail {

/// True for well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
[[nodiscard]] bool is_utf8(std::string_view text);

/// `text` in quotes for an error or a terminal: control characters and broken UTF-8 as \xNN, so
/// that a name from a file or a peer cannot move a cursor, and cut after 128 bytes.
[[nodiscard]] std::string quote_text(std::string_view text);

}  // namespace tendon::inline v0::detail
