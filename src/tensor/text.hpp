// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/text.hpp"

namespace tendon::v0::detail {

/// `text` in quotes for an error or a terminal. The bytes of hidden characters (is_hidden) and of
/// broken UTF-8 are written as \xNN, so that a name from a file or a peer cannot move a cursor nor
/// pass for another name. Cut after 128 bytes.
[[nodiscard]] std::string quote_text(std::string_view text);

}  // namespace tendon::v0::detail
