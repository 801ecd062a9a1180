// SPDX-License-Identifier: Apache-2.0
// Makes a call of the package's functions whose arguments fit no overload fail with the package's
// own message instead of the binding's.
#include "arguments.hpp"

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

#include "last_argument.hpp"

namespace tendon::python {
namespace {

/// The mark of an argument that the call left out.
nb::object nothing() { return nb::borrow(Py_NotImplemented); }

nb::object explain(nb::handle function, nb::handle self, const LastArgument& first,
                   const nb::args& others, const nb::kwargs& named) {
  nb::list given;
  if (self.is_valid()) given.append(self);
  if (!first.object.is(nothing())) given.append(first.object);
  for (const nb::handle each : others) given.append(each);
  return nb::module_::import_("tendon._arguments").attr("explain")(function, given, named);
}

/// Adds the overload to a function of `scope`, which is a module or a class.
void explain_function(nb::handle scope, nb::handle name, nb::handle function, bool is_method) {
  const auto text = nb::cast<std::string>(name);
  const auto signature = nb::object(function.attr("__nb_signature__")[0]);
  const auto described = nb::make_tuple(name, signature, is_method);
  const auto define = [&](auto call, const auto&... method) {
    nb::cpp_function_def(call, nb::scope(scope), nb::name(text.c_str()), method...,
                         nb::arg("_").none() = nothing(), nb::arg("others"), nb::arg("named"));
  };
  if (is_method) {
    define([described](nb::handle self, LastArgument first, nb::args others,
                       nb::kwargs named) { return explain(described, self, first, others, named); },
           nb::is_method());
  } else {
    define([described](LastArgument first, nb::args others, nb::kwargs named) {
      return explain(described, nb::handle(), first, others, named);
    });
  }
}

}  // namespace

void set_signature(nb::type_object type, nb::object property) {
  // Python code cannot set it: types of functions are immutable. The nanobind domain keeps this
  // type private to the package.
  auto* const of = reinterpret_cast<PyTypeObject*>(type.ptr());
  if (PyDict_SetItemString(of->tp_dict, "__signature__", property.ptr()) != 0)
    throw nb::python_error();
  PyType_Modified(of);
}

void explain_arguments(nb::handle scope) {
  const nb::object members = nb::module_::import_("tendon._arguments").attr("functions_of")(scope);
  for (const nb::handle member : members)
    explain_function(member[0], member[1], member[2], nb::cast<bool>(member[3]));
}

}  // namespace tendon::python
