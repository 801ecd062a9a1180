// SPDX-License-Identifier: Apache-2.0
#include "wait.hpp"

#include <cmath>
#include <string>

namespace tendon::python {

namespace {

// As Python writes it: with a point in whatever locale.
std::string text_of(double number) { return nb::cast<std::string>(nb::str(nb::float_(number))); }

}  // namespace

Deadline deadline_of(nb::handle timeout, double default_s) {
  double seconds = default_s;
  if (timeout.is_none()) return Deadline::never();
  if (timeout.ptr() != Py_Ellipsis) {
    if (PyBool_Check(timeout.ptr()) ||
        PyIndex_Check(timeout.ptr()) + PyFloat_Check(timeout.ptr()) == 0)
      raise_type_error("timeout is a " + quoted_type(timeout) +
                       "; legal are seconds as a number, or None to wait for ever");
    seconds = PyFloat_AsDouble(timeout.ptr());
    if (seconds == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
  }
  if (!(seconds >= 0)) {
    raise_value_error("timeout is " + text_of(seconds) +
                      "; legal are 0 seconds (do not wait) and more, or None to wait for ever");
  }
  return std::isinf(seconds) ? Deadline::never() : Deadline(std::chrono::duration<double>(seconds));
}

void drop_closed_loops() {
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const known = PyDict_GetItemString(modules, "tendon._asyncio");
  if (known != nullptr) nb::handle(known).attr("drop_closed")();
}

std::chrono::milliseconds duration_of(double seconds, const char* what) {
  if (!(seconds >= 0) || seconds > 1e9) {
    raise_value_error(std::string(what) + " is " + text_of(seconds) +
                      " seconds; legal is 0 to 1e9");
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::duration<double>(seconds));
}

}  // namespace tendon::python
