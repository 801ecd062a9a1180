// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/fabric/sample.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// What a Python Sample holds: its tensors apart, as `as_=` asked for them.
struct SampleHandle {
  Sample sample;
  nb::object tensors;
};

[[nodiscard]] SampleHandle make_sample(Sample sample, nb::handle as);

}  // namespace tendon::python
