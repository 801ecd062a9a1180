// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/tensor/value.hpp>

namespace tendon::v0::detail {

/// The limits of a text of JSON.
struct JsonLimits {
  std::size_t max_bytes;
  std::size_t max_depth;
  std::size_t max_values;
};

/// Reads one JSON value of any kind; `what` names it in errors. Duplicate keys are refused.
[[nodiscard]] Result<Value> parse_json_value(std::string_view json, std::string_view what,
                                             JsonLimits limits);
/// Appends `value` as to_json() writes it, nested at most `depth` levels.
[[nodiscard]] Result<void> append_json(std::string& out, const Value& value, std::size_t depth);
/// Appends `text` as a JSON string; invalid_argument when it is not UTF-8.
[[nodiscard]] Result<void> append_json_string(std::string& out, std::string_view text);

}  // namespace tendon::v0::detail
