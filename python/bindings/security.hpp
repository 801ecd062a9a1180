// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <tendon/session/profile.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// What the arguments `profile` and `security` of a call say together: a tendon.Security, or None
/// and the word of a profile.
[[nodiscard]] Security security_from(const std::string& profile, nb::handle security);

}  // namespace tendon::python
