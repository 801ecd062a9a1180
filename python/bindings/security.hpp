// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <tendon/session/profile.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// Combines the arguments `profile` and `security` of a call: a tendon.Security, or None with the
/// name of a profile.
[[nodiscard]] Security security_from(const std::string& profile, nb::handle security);

}  // namespace tendon::python
