// SPDX-License-Identifier: Apache-2.0
#include "values.hpp"

#include <nanobind/stl/string.h>

#include <tendon/tensor/limits.hpp>

#include "errors.hpp"

namespace tendon::python {
namespace {

std::string text_of(nb::handle object, const std::string& name) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(object.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    raise_value_error(name + " holds text that is not Unicode (a lone surrogate)");
  }
  return {text, static_cast<std::size_t>(size)};
}

Value integer_from(nb::handle object, const std::string& name) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(object.ptr(), &overflow);
  if (overflow == 0) return value;
  const unsigned long long large = PyLong_AsUnsignedLongLong(object.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise_value_error(name + " is an integer that does not fit in 64 bits; send it as text");
  }
  return large;
}

Value inner_value(nb::handle object, const std::string& name, std::size_t depth);

Value list_from(nb::handle object, const std::string& name, std::size_t depth) {
  Value::List items;
  std::size_t at = 0;
  for (nb::handle item : nb::borrow<nb::list>(object))
    items.push_back(inner_value(item, name + "[" + std::to_string(at++) + "]", depth + 1));
  return items;
}

Value map_from(nb::handle object, const std::string& name, std::size_t depth) {
  Value::Map entries;
  for (auto [key, item] : nb::borrow<nb::dict>(object)) {
    if (!PyUnicode_Check(key.ptr())) {
      raise_type_error(name + " has a key that is a " + quoted_type(key) +
                       "; legal keys are of type 'str'");
    }
    const std::string text = text_of(key, name);
    entries.emplace_back(text, inner_value(item, name + "[\"" + text + "\"]", depth + 1));
  }
  return entries;
}

// Refuses an enumeration's member that is also a number or text: it would arrive without its class.
void refuse_enumeration(nb::handle object, const std::string& name) {
  const nb::handle enumeration = PyDict_GetItemString(PyImport_GetModuleDict(), "enum");
  if (!enumeration.is_valid() || !nb::isinstance(object, enumeration.attr("Enum"))) return;
  raise_type_error(name + " is " + shown(object) +
                   ", whose class would be lost; legal is what it stands for: its value or name");
}

std::optional<Value> scalar_from(nb::handle object, const std::string& name) {
  PyObject* const p = object.ptr();
  if (object.is_none()) return Value();
  if (PyBool_Check(p)) return Value(p == Py_True);
  if ((PyLong_Check(p) && !PyLong_CheckExact(p)) ||
      (PyUnicode_Check(p) && !PyUnicode_CheckExact(p)) ||
      (PyFloat_Check(p) && !PyFloat_CheckExact(p)))
    refuse_enumeration(object, name);
  if (PyLong_Check(p)) return integer_from(object, name);
  // A numpy.float64 is a float too, but is sent as an array of one element, like other NumPy
  // numbers.
  if (PyFloat_Check(p) && PyObject_CheckBuffer(p) == 0) return Value(PyFloat_AS_DOUBLE(p));
  if (PyUnicode_Check(p)) return Value(text_of(object, name));
  return std::nullopt;
}

Value inner_value(nb::handle object, const std::string& name, std::size_t depth) {
  if (depth > kMaxDepth) {
    raise_value_error(name + " is nested deeper than " + std::to_string(kMaxDepth) +
                      " levels, or contains itself");
  }
  if (auto scalar = scalar_from(object, name)) return *std::move(scalar);
  if (PyList_Check(object.ptr())) return list_from(object, name, depth);
  if (PyDict_Check(object.ptr())) return map_from(object, name, depth);
  raise_type_error(name + " is a " + quoted_type(object) +
                   "; legal are None, bool, int, float, str, and lists and dicts of "
                   "these; numbers of one shape go as an array, as in numpy.asarray");
}

}  // namespace

std::optional<Value> value_from(nb::handle object, const std::string& name) {
  if (auto scalar = scalar_from(object, name)) return scalar;
  if (PyList_Check(object.ptr())) return list_from(object, name, 0);
  return std::nullopt;
}

Value any_value_from(nb::handle object, const std::string& name) {
  return inner_value(object, name, 0);
}

nb::object to_object(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::null:
      return nb::none();
    case Value::Kind::boolean:
      return nb::bool_(value.as_bool());
    case Value::Kind::i64:
      return nb::int_(value.as_i64());
    case Value::Kind::u64:
      return nb::int_(value.as_u64());
    case Value::Kind::f64:
      return nb::float_(value.as_f64());
    case Value::Kind::string:
      return nb::str(value.as_string().data(), value.as_string().size());
    case Value::Kind::list: {
      nb::list items;
      for (const Value& item : value.as_list()) items.append(to_object(item));
      return items;
    }
    case Value::Kind::map: {
      nb::dict entries;
      for (const auto& [key, item] : value.as_map())
        entries[nb::str(key.data(), key.size())] = to_object(item);
      return entries;
    }
  }
  return nb::none();
}

}  // namespace tendon::python
