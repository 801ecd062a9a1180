// SPDX-License-Identifier: Apache-2.0
// Files of the repository that are part of the command; embed.cmake writes the definitions.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <tendon/control/limits.hpp>
#include <tendon/fabric/limits.hpp>
#include <tendon/session/limits.hpp>
#include <tendon/tensor/limits.hpp>

namespace tendon::cli {

/// A page of docs/errors/.
struct ErrorPage {
  std::string_view id;  ///< "TD-E0107"
  std::string_view text;
};

[[nodiscard]] std::span<const ErrorPage> error_pages();

/// A row of docs/limits.md. The value is that of the constant.
struct Limit {
  std::string_view name;
  std::uint64_t value;
  std::string_view shown;  ///< the value as the page writes it
  std::string_view meaning;
};
[[nodiscard]] consteval std::uint64_t whole(std::integral auto limit) {
  return static_cast<std::uint64_t>(limit);
}
/// The limit in seconds. A limit of another unit does not compile: its rows would need one.
[[nodiscard]] consteval std::uint64_t whole(std::chrono::milliseconds limit) {
  if (limit % std::chrono::seconds(1) != std::chrono::milliseconds(0)) throw limit;
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(limit).count());
}
[[nodiscard]] std::span<const Limit> limits();
/// tools/completion/tendon.bash
[[nodiscard]] std::string_view bash_completion();

}  // namespace tendon::cli
