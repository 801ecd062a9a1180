// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include "shared.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// Sets `__signature__` of a type whose attributes Python code may not set: the binding's own types
/// of functions, where inspect.signature() looks.
void set_signature(nb::type_object type, nb::object property);

/// Gives every public function of a module, and of its classes, a last overload that takes whatever
/// the others refuse: tendon/_arguments.py finds the words for it. Once, after all are bound.
TENDON_BETWEEN_MODULES void explain_arguments(nb::handle module);

}  // namespace tendon::python
