// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/fabric/sample.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Sample; its tensors are apart, in the form that `as_=` asked for.
struct SampleHandle {
  Sample sample;
  nb::object tensors;
};

/// Notes where it lies: a write to what may only be read can name its key.
[[nodiscard]] SampleHandle make_sample(Sample sample, nb::handle as);

}  // namespace tendon::python
