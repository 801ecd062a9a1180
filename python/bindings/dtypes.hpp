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
/// The format of the buffer protocol; nullptr for types that it (and NumPy) cannot express.
[[nodiscard]] const char* format_of(DType dtype);
/// The type of an array interface's typestr: "<f4", "|u1". nullopt for another byte order and for
/// types that NumPy lacks.
[[nodiscard]] std::optional<DType> dtype_from_typestr(std::string_view typestr);
/// Its inverse; empty for types that NumPy lacks.
[[nodiscard]] std::string typestr_of(DType dtype);
/// The type with this name in NumPy, ml_dtypes or torch: "float32", "torch.bfloat16",
/// "float8_e4m3fn".
[[nodiscard]] std::optional<DType> dtype_from_array_name(std::string_view name);
/// Reads a `dtype` argument: "float32", numpy.float32, torch.float32, and Tendon's own names unless
/// NumPy reads them differently: "f32", but not "i8". TypeError for others.
[[nodiscard]] DType dtype_of_object(nb::handle dtype);
/// "bool, uint8, ...": all full names, for messages.
[[nodiscard]] std::string legal_dtypes();

}  // namespace tendon::python
