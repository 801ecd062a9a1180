// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <tendon/tensor/value.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// Converts non-tensor data for sending: None, bool, int of 64 bits, float, str, and lists and
/// dicts of these. nullopt for anything else at the top level; TypeError or ValueError, naming
/// `name`, for illegal data inside.
[[nodiscard]] std::optional<Value> value_from(nb::handle object, const std::string& name);
/// The same, but a dict is a value too, and anything else is an error.
[[nodiscard]] Value any_value_from(nb::handle object, const std::string& name);
/// The inverse.
[[nodiscard]] nb::object to_object(const Value& value);

}  // namespace tendon::python
