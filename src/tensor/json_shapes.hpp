// SPDX-License-Identifier: Apache-2.0
// Batch sizes, shapes and names of dimensions in the JSON of files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/tensor/shape.hpp>
#include <tendon/tensor/value.hpp>
#include <vector>

namespace tendon::v0::detail {

// The text is not trusted. corrupt_data and limit_exceeded name the fault of `what`; the reader
// adds its place.

[[nodiscard]] Result<Shape> shape_of_json(const Value& value, std::string_view what);
/// One name for each batch dimension, "" for null; empty if all are null.
[[nodiscard]] Result<std::vector<std::string>> names_of_json(const Value& value,
                                                             std::size_t dimensions);

/// "[2, 3]" with the separator ", ".
void append_json_shape(std::string& out, const Shape& shape, std::string_view separator);
[[nodiscard]] Result<void> append_json_names(std::string& out,
                                             const std::vector<std::string>& names,
                                             std::string_view separator);

}  // namespace tendon::v0::detail
