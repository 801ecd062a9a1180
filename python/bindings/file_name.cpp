// SPDX-License-Identifier: Apache-2.0
#include "file_name.hpp"

#include "errors.hpp"

namespace tendon::python {

std::string file_name(nb::handle path) {
  nb::object bytes;
  PyObject* found = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &found) == 0) {
    PyErr_Clear();
    raise_type_error("path is " + shown(path) +
                     "; legal are a str, bytes or os.PathLike, without null characters");
  }
  bytes = nb::steal(found);
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

}  // namespace tendon::python
