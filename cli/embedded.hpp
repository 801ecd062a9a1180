// SPDX-License-Identifier: Apache-2.0
// Files of the repository that are part of the command; embed.cmake writes the other half.
#pragma once

#include <span>
#include <string_view>

namespace tendon::cli {

/// A page of docs/errors/.
struct ErrorPage {
  std::string_view id;  ///< "TD-E0107"
  std::string_view text;
};

[[nodiscard]] std::span<const ErrorPage> error_pages();
/// tools/completion/tendon.bash
[[nodiscard]] std::string_view bash_completion();

}  // namespace tendon::cli
