// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <tendon/core/result.hpp>
#include <utility>

#include "shared.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The Python exception of `error`, ready to be thrown; holds the GIL.
TENDON_BETWEEN_MODULES [[nodiscard]] nb::python_error to_exception(const Error& error);
/// The Python exception object of `error`, not raised.
[[nodiscard]] nb::object exception_object(const Error& error);

/// Returns the Error in an exception that a user made from one of our classes; a TypeError for
/// others.
[[nodiscard]] Error error_from(nb::handle exception);
/// The same; nullopt for anything else.
TENDON_BETWEEN_MODULES [[nodiscard]] std::optional<Error> try_error_from(nb::handle exception);

/// Returns the value, or throws the exception of the error. Holds the GIL.
template <class T>
T unwrap(Result<T> result) {
  if (!result) throw to_exception(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// Raises a TypeError or ValueError about the caller's arguments, with the legal values.
TENDON_BETWEEN_MODULES [[noreturn]] void raise_type_error(const std::string& text);
TENDON_BETWEEN_MODULES [[noreturn]] void raise_value_error(const std::string& text);

/// "'numpy.ndarray'": how messages name the type of an object.
TENDON_BETWEEN_MODULES [[nodiscard]] std::string quoted_type(nb::handle object);
/// "('127.0.0.1', 7000), a 'tuple'": a value and its type, short, for messages.
TENDON_BETWEEN_MODULES [[nodiscard]] std::string shown(nb::handle object);
/// A str as UTF-8; escapes a lone surrogate, which UTF-8 lacks.
TENDON_BETWEEN_MODULES [[nodiscard]] std::string utf8_of(nb::handle text);
/// "ValueError: why" for any exception. Escapes text that UTF-8 cannot express, and omits a part
/// whose conversion to text raises.
TENDON_BETWEEN_MODULES [[nodiscard]] std::string exception_text(nb::handle type, nb::handle value);

}  // namespace tendon::python
