// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <tendon/tensor/schema.hpp>

#include "dtypes.hpp"

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Schema.
struct SchemaHandle {
  std::shared_ptr<const Schema> schema;
};

/// Reads a `shape` argument: an int or a sequence of ints.
[[nodiscard]] Shape shape_from(nb::handle shape);
/// Reads a Schema, or an argument of Schema() or Schema.of().
[[nodiscard]] std::shared_ptr<const Schema> schema_from(nb::handle object);

}  // namespace tendon::python
