// SPDX-License-Identifier: Apache-2.0
#include "wait.hpp"

#include <cmath>
#include <string>

namespace tendon::python {

namespace {

// As Python writes it: with a point in every locale.
std::string text_of(double number) { return nb::cast<std::string>(nb::str(nb::float_(number))); }

}  // namespace

Deadline deadline_of(nb::handle timeout, double default_s) {
  double seconds = default_s;
  if (timeout.is_none()) return Deadline::never();
  if (timeout.ptr() != Py_Ellipsis) {
    const bool is_number = PyBool_Check(timeout.ptr()) == 0 &&
                           (PyIndex_Check(timeout.ptr()) != 0 || PyFloat_Check(timeout.ptr()) != 0);
    if (is_number) seconds = PyFloat_AsDouble(timeout.ptr());
    if (!is_number || (seconds == -1.0 && PyErr_Occurred() != nullptr)) {
      PyErr_Clear();
      raise_type_error("timeout is " + shown(timeout) +
                       "; legal are seconds as an int or a float, such as 0.5, or None to wait for "
                       "ever; float(it) and timedelta.total_seconds() make them");
    }
  }
  if (!(seconds >= 0)) {
    raise_value_error("timeout is " + text_of(seconds) +
                      "; legal are 0 seconds (do not wait) and more, or None to wait for ever");
  }
  return std::isinf(seconds) ? Deadline::never() : Deadline(std::chrono::duration<double>(seconds));
}

nb::object seconds_left(Deadline deadline) {
  if (deadline.is_never()) return nb::none();
  if (deadline.is_poll()) return nb::float_(0.0);
  return nb::float_(std::chrono::duration<double>(deadline.remaining()).count());
}

void note_running_loop(Deadline deadline) {
  static bool is_said = false;
  static PyObject* running_loop = nullptr;  // never released: asyncio is never unloaded
  if (is_said || deadline.is_poll()) return;
  if (running_loop == nullptr) {
    // Only a program that has imported asyncio has a loop.
    static PyObject* const kName = PyUnicode_InternFromString("asyncio.events");
    PyObject* const events = PyDict_GetItemWithError(PyImport_GetModuleDict(), kName);
    if (events == nullptr) return PyErr_Clear();
    running_loop = PyObject_GetAttrString(events, "_get_running_loop");
    if (running_loop == nullptr) return PyErr_Clear();  // still being imported
  }
  const auto loop = nb::steal(PyObject_CallNoArgs(running_loop));
  if (!loop.is_valid()) throw nb::python_error();
  if (loop.is_none()) return;
  is_said = true;
  nb::module_::import_("tendon._blocking").attr("warn")();
}

void drop_closed_loops() {
  PyObject* const modules = PyImport_GetModuleDict();
  PyObject* const known = PyDict_GetItemString(modules, "tendon._asyncio");
  if (known == nullptr) return;
  // A module that another thread is still importing has no loops yet.
  const nb::object drop = nb::getattr(nb::handle(known), "drop_closed", nb::none());
  if (!drop.is_none()) drop();
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
