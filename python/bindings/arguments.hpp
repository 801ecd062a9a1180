// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include "shared.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// Sets `__signature__` of a type whose attributes Python code cannot set: the binding's own types
/// of functions. inspect.signature() looks there.
void set_signature(nb::type_object type, nb::object property);

/// Adds a last overload to every public function of a module and of its classes. It takes any
/// arguments that the others refuse, and tendon/_arguments.py words the error. Call once, after all
/// functions are bound.
TENDON_BETWEEN_MODULES void explain_arguments(nb::handle module);

}  // namespace tendon::python
