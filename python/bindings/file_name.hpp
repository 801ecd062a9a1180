// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

namespace tendon::python {

namespace nb = nanobind;

/// The bytes of a path: a str, bytes or os.PathLike. TypeError and ValueError, which name
/// `argument`.
[[nodiscard]] std::string file_name(nb::handle path, std::string_view argument = "path");

}  // namespace tendon::python
