// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <string_view>
#include <tendon/tensor/dtype.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// The type that a format of the buffer protocol names for elements of this size; nullopt for
/// everything that is not one number in this machine's byte order.
[[nodiscard]] std::optional<DType> dtype_from_format(const char* format, Py_ssize_t item_bytes);
/// The format of the buffer protocol, nullptr for types that it (and NumPy) has no word for.
[[nodiscard]] const char* format_of(DType dtype);
/// The type that NumPy, ml_dtypes and torch call so: "float32", "torch.bfloat16", "float8_e4m3fn".
[[nodiscard]] std::optional<DType> dtype_from_array_name(std::string_view name);
/// What ml_dtypes calls it: "bfloat16". For types without a format.
[[nodiscard]] std::string_view array_name_of(DType dtype);
/// From a `dtype` argument: "f32", "float32", numpy.float32, torch.float32; else a TypeError.
[[nodiscard]] DType dtype_of_object(nb::handle dtype);
/// "f32, bf16, ...": every name there is, for messages.
[[nodiscard]] std::string legal_dtypes();

}  // namespace tendon::python
