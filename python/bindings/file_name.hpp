// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>

namespace tendon::python {

namespace nb = nanobind;

/// The bytes of a path: of a str, bytes or os.PathLike. TypeError.
[[nodiscard]] std::string file_name(nb::handle path);

}  // namespace tendon::python
