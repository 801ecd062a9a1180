// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

namespace tendon::python {

/// An argument of any type, after `self`, of a last overload: it is tried only after every other
/// overload, with conversions too.
struct LastArgument {
  nanobind::object object;
};

}  // namespace tendon::python

namespace nanobind::detail {

template <>
struct type_caster<tendon::python::LastArgument> {
  NB_TYPE_CASTER(tendon::python::LastArgument, const_name("object"))

  bool from_python(handle source, std::uint32_t flags, cleanup_list* /*unused*/) noexcept {
    // Refuses in the first round of a call, which converts nothing.
    if ((flags & static_cast<std::uint32_t>(cast_flags::convert)) == 0) return false;
    value.object = borrow(source);
    return true;
  }
};

}  // namespace nanobind::detail
