// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include <map>
#include <tendon/tensor/safetensors.hpp>

#include "bindings.hpp"
#include "dicts.hpp"
#include "errors.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

std::string file_name(nb::handle path) {
  nb::object bytes;
  PyObject* found = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &found) == 0) throw nb::python_error();
  bytes = nb::steal(found);
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

TensorDict load(nb::object path) {
  const std::string name = file_name(path);
  auto loaded = [&] {
    const WithoutGil unlocked;
    return load_safetensors(name);
  }();
  return unwrap(std::move(loaded));
}

void save(nb::object path, nb::object batch, nb::dict metadata) {
  const std::string name = file_name(path);
  const TensorDict dict = dict_for_file(batch);
  SaveOptions options;
  for (auto [key, text] : metadata) {
    if (!PyUnicode_Check(key.ptr()) || !PyUnicode_Check(text.ptr()))
      raise_type_error("metadata is a mapping from str to str");
    options.metadata.emplace_back(nb::cast<std::string>(key), nb::cast<std::string>(text));
  }
  auto saved = [&] {
    const WithoutGil unlocked;
    return save_safetensors(name, dict, options);
  }();
  unwrap(std::move(saved));
}

}  // namespace

void bind_safetensors(nb::module_& module) {
  module.def("load", load, nb::arg("path").none(),
             "The batch in a safetensors file, as views on the mapped file.\n\n"
             "What is written to them stays in this process. Raises FileNotFound,\n"
             "CorruptData, LimitExceeded, UnsupportedDType.",
             nb::sig("def load(path: str | os.PathLike[str]) -> TensorDict"));
  module.def("save", save, nb::arg("path").none(), nb::arg("batch").none(), nb::kw_only(),
             nb::arg("metadata") = nb::dict(),
             "Saves a batch as a safetensors file: as a whole or not at all.\n\n"
             "Nesting, values and batch sizes are kept as tensordict keeps them.\n"
             "metadata: further texts for the file's head.",
             nb::sig("def save(path: str | os.PathLike[str], batch: object, *, metadata: "
                     "dict[str, str] = {}) -> None"));
}

}  // namespace tendon::python
