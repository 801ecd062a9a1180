// SPDX-License-Identifier: Apache-2.0
// A path names an entry of nested TensorDicts: names joined by "/". Inside a name "/" is written
// %2F and "%" %25; the name without characters is written "%".
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// Writes a name as it stands in a path: "a/b" becomes "a%2Fb".
[[nodiscard]] TENDON_API std::string escape_name(std::string_view name);
/// Refuses an impossible name: limit_exceeded above kMaxNameBytes, invalid_argument if it is not
/// UTF-8 or is "__metadata__", which safetensors files use themselves.
[[nodiscard]] TENDON_API Result<void> check_name(std::string_view name);
/// The names of a path, at least one. invalid_argument for an empty text, an empty part ("a//b") or
/// an unknown escape; limit_exceeded above kMaxPathBytes or kMaxDepth; errors of check_name.
[[nodiscard]] TENDON_API Result<std::vector<std::string>> parse_path(std::string_view path);
/// The path of these names; errors as parse_path.
[[nodiscard]] TENDON_API Result<std::string> format_path(std::span<const std::string> names);

}  // namespace v0
}  // namespace tendon
