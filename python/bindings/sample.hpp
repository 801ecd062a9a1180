// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nanobind/nanobind.h>

#include <tendon/fabric/sample.hpp>

namespace tendon::python {

namespace nb = nanobind;

/// The state of a Python Sample; its tensors are separate, in the form that `as_=` asked for.
struct SampleHandle {
  Sample sample;
  nb::object tensors;
};

/// Notes the memory of the sample, so that a write to read-only memory can name its key.
[[nodiscard]] SampleHandle make_sample(Sample sample, nb::handle as);

}  // namespace tendon::python
