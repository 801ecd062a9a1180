// SPDX-License-Identifier: Apache-2.0
#include "file_name.hpp"

#include "errors.hpp"

namespace tendon::python {

std::string file_name(nb::handle path, std::string_view argument) {
  nb::object bytes;
  PyObject* found = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &found) == 0) {
    const bool is_unwritable = PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) != 0;
    const bool has_null = PyErr_ExceptionMatches(PyExc_ValueError) != 0;
    PyErr_Clear();
    const std::string text = std::string(argument) + " is " + shown(path);
    if (is_unwritable)
      raise_value_error(text +
                        ", which has a character that no name of a file has; legal are "
                        "those that os.fsencode takes");
    if (has_null) raise_value_error(text + "; legal are names without null characters");
    raise_type_error(text + "; legal are a str, bytes or os.PathLike");
  }
  bytes = nb::steal(found);
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

}  // namespace tendon::python
