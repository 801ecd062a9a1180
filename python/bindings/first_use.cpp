// SPDX-License-Identifier: Apache-2.0
#include "first_use.hpp"

#include <nanobind/nanobind.h>

#include <exception>

#include "conversion.hpp"
#include "same_again.hpp"
#include "tensordict_api.hpp"

namespace tendon::python {
namespace {

void convert_a_sample(nb::handle adapter) {
  const nb::object sample = adapter.attr("_sample")();
  SameAgain sent;
  if (!SameAgain::may_know(sample)) return;
  sent.take(sample);
  (void)converted(sent.batch(), sample.type());
}

}  // namespace

void prepare_conversions() {
  static bool tried = false;  // under the GIL
  if (tried) return;
  if (PyDict_GetItemString(PyImport_GetModuleDict(), "tensordict") == nullptr) return;
  tried = true;
  try {
    convert_a_sample(tensordict_adapter());
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
  } catch (const std::exception&) {              // the call that needs it reports it
  }
}

}  // namespace tendon::python
