// SPDX-License-Identifier: Apache-2.0
// Makes one Python class for each row of the table of errors.
#include "errors.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <exception>
#include <map>

#include "bindings.hpp"
#include "core/text.hpp"

namespace tendon::python {
namespace {

constexpr const char* kErrorDoc =
    "The base of all errors of Tendon: each says what failed, why, and what to do.\n\n"
    "Every class also is the built-in exception that is nearest to it: a\n"
    "Timeout is a TimeoutError, a PeerLost a ConnectionError.\n\n"
    "code: 'TD-E0107'; `tendon explain TD-E0107` shows its page.\n"
    "name: 'peer_lost', the name in C++.\n"
    "remedy: what to do next, one of a few words.\n"
    "where: the call that failed, to grep for; detail: object, value and legal\n"
    "range, without code and remedy; errno: of the system call that failed, where one did.";

// Borrowed references: the module keeps its classes alive and is never unloaded.
std::map<ErrorCode, PyObject*>& classes() {
  static std::map<ErrorCode, PyObject*> table;
  return table;
}

nb::str text(std::string_view view) { return nb::str(view.data(), view.size()); }

nb::object make_class(const char* name, const nb::tuple& bases, const nb::dict& members) {
  return nb::borrow<nb::object>(nb::handle(reinterpret_cast<PyObject*>(&PyType_Type)))(name, bases,
                                                                                       members);
}

// A KeyError would show its message in quotes.
nb::object plain_str() { return nb::borrow<nb::object>(PyExc_Exception).attr("__str__"); }

// Replaces names of C++ with the names of this package.
std::string in_python(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"Profile::plaintext", "profile='plaintext'"},
      {"Security::load()", "tendon.Security()"},
      {"Pipe::loan", "pipe.loan"},
      {"Publisher::loan", "publisher.loan"},
      {"NodeOptions::peers", "peers"},
      {"GroupOptions::listen", "listen"},
      {"RecvMode::view_or_copy", "mode='view_or_copy'"},
      {"ContextOptions::", "the Context's "}};
  for (const auto& [ours, theirs] : kWords)
    for (auto at = text.find(ours); at != std::string::npos; at = text.find(ours, at + 1))
      text.replace(at, ours.size(), theirs);
  return text;
}

}  // namespace

nb::object exception_object(const Error& original) {
  Error error = original;
  error.detail = in_python(std::move(error.detail));
  const auto found = classes().find(error_info(error.code).code);
  nb::object exception = nb::handle(found->second)(error.message());
  exception.attr("remedy") = text(to_string(error.remedy()));
  exception.attr("where") = text(error.where);
  if (error.system_errno != 0) exception.attr("errno") = error.system_errno;
  exception.attr("detail") = text(detail::escaped(error.detail, error.detail.max_size()));
  return exception;
}

std::optional<Error> try_error_from(nb::handle exception) {
  for (const auto& [code, made] : classes()) {
    if (nb::handle(made).is(exception.type())) {
      const std::string detail = utf8_of(nb::str(exception.attr("detail")));
      return Error{code, "python", detail.empty() ? utf8_of(nb::str(exception)) : detail};
    }
  }
  return std::nullopt;
}

Error error_from(nb::handle exception) {
  if (auto error = try_error_from(exception)) return *std::move(error);
  raise_type_error(
      "the reason is a " + quoted_type(exception) +
      "; legal is an exception of tendon, such as tendon.ServerBusy('no seat is free')");
}

nb::python_error to_exception(const Error& error) {
  const nb::object exception = exception_object(error);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  return {};
}

void raise_type_error(const std::string& text) { throw nb::type_error(text.c_str()); }
void raise_value_error(const std::string& text) { throw nb::value_error(text.c_str()); }

std::string utf8_of(nb::handle text) {
  const auto bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

std::string exception_text(nb::handle type, nb::handle value) {
  std::string text =
      PyType_Check(type.ptr()) ? reinterpret_cast<PyTypeObject*>(type.ptr())->tp_name : "exception";
  const auto said = nb::steal(PyObject_Str(value.ptr()));
  if (said.is_valid())
    text += ": " + utf8_of(said);
  else
    PyErr_Clear();
  return text;
}

std::string quoted_type(nb::handle object) {
  const nb::handle type = object.type();
  const auto module = nb::cast<std::string>(type.attr("__module__"));
  const auto name = nb::cast<std::string>(type.attr("__qualname__"));
  return "'" + (module == "builtins" ? name : module + "." + name) + "'";
}

std::string shown(nb::handle object) {
  constexpr std::size_t kShown = 80;
  std::string text = "a " + quoted_type(object);
  const auto said = nb::steal(PyObject_Repr(object.ptr()));
  if (!said.is_valid()) {
    PyErr_Clear();
    return text;
  }
  const std::string value = detail::escaped(utf8_of(said), kShown);
  return value + ", " + text;
}

void bind_errors(nb::module_& module) {
  nb::dict base;
  base["__doc__"] = kErrorDoc;
  base["__str__"] = plain_str();
  base["__module__"] = module.attr("__name__");
  for (const char* attribute : {"code", "name", "remedy", "where", "detail"}) base[attribute] = "";
  const nb::object error = make_class("Error", nb::make_tuple(nb::handle(PyExc_Exception)), base);
  module.attr("Error") = error;
  const nb::module_ builtins = nb::module_::import_("builtins");
  for (const ErrorInfo& row : error_table()) {
    nb::dict members;
    const std::string id = error_id(row.code);
    members["__module__"] = module.attr("__name__");
    members["__doc__"] = text(id + ": " + std::string(row.summary) + ".");
    members["code"] = text(id);
    members["name"] = text(row.name);
    members["remedy"] = text(to_string(row.remedy));
    const std::string name(row.python_exception);
    const nb::object builtin = builtins.attr(std::string(row.python_builtin).c_str());
    const nb::object made = make_class(name.c_str(), nb::make_tuple(error, builtin), members);
    module.attr(name.c_str()) = made;
    classes()[row.code] = made.ptr();
  }
  module.def("_corrupt_data", [](const std::string& detail) {
    return exception_object({ErrorCode::corrupt_data, "tensordict", detail});
  });
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Exception& exception) {
      to_exception(exception.error()).restore();
    }
  });
}

}  // namespace tendon::python
