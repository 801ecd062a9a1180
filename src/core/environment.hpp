// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <string_view>

namespace tendon {
inline namespace v0 {
namespace detail {

/// The value of an environment variable; empty if it is not set. An empty value counts as unset for
/// all readers (docs/environment.md).
[[nodiscard]] inline std::string_view environment_variable(const char* name) noexcept {
  const char* const text = std::getenv(name);
  return text == nullptr ? std::string_view() : text;
}

}  // namespace detail
}  // namespace v0
}  // namespace tendon
