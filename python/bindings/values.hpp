// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <tendon/tensor/value.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// Non-tensor data as it travels: None, bool, int of 64 bits, float, str, and lists and dicts of
/// these. nullopt for anything else at the top; TypeError or ValueError, naming `name`, for what
/// cannot travel inside.
[[nodiscard]] std::optional<Value> value_from(nb::handle object, const std::string& name);
/// The same where a dict is a value, and nothing else than these is legal.
[[nodiscard]] Value any_value_from(nb::handle object, const std::string& name);
/// The inverse.
[[nodiscard]] nb::object to_object(const Value& value);

}  // namespace tendon::python
