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

/// The Error in an exception that a user made of one of our classes; a TypeError for others.
[[nodiscard]] Error error_from(nb::handle exception);
/// The same; nullopt for anything else.
TENDON_BETWEEN_MODULES [[nodiscard]] std::optional<Error> try_error_from(nb::handle exception);

/// The value, or the exception of the error. Holds the GIL.
template <class T>
T unwrap(Result<T> result) {
  if (!result) throw to_exception(result.error());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

/// A TypeError or ValueError of the caller's own arguments: says what is legal.
TENDON_BETWEEN_MODULES [[noreturn]] void raise_type_error(const std::string& text);
TENDON_BETWEEN_MODULES [[noreturn]] void raise_value_error(const std::string& text);

/// "'numpy.ndarray'": how messages name the type of an object.
TENDON_BETWEEN_MODULES [[nodiscard]] std::string quoted_type(nb::handle object);
/// "('127.0.0.1', 7000), a 'tuple'": a value and its type, short, for messages.
TENDON_BETWEEN_MODULES [[nodiscard]] std::string shown(nb::handle object);
/// A str as UTF-8; what cannot be said in it, a lone surrogate, is escaped.
TENDON_BETWEEN_MODULES [[nodiscard]] std::string utf8_of(nb::handle text);
/// "ValueError: why", of any exception: what cannot be said in UTF-8 is escaped, what raises while
/// it is said is left out.
TENDON_BETWEEN_MODULES [[nodiscard]] std::string exception_text(nb::handle type, nb::handle value);

}  // namespace tendon::python
