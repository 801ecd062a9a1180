// SPDX-License-Identifier: Apache-2.0
#include <nanobind/stl/string.h>

#include <algorithm>
#include <tendon/tensor/safetensors.hpp>

#include "bindings.hpp"
#include "conversion.hpp"
#include "copies.hpp"
#include "dicts.hpp"
#include "errors.hpp"
#include "file_name.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

/// The batch that load() returns, with the texts of its file's header.
struct LoadedDict : TensorDict {
  SafetensorsMetadata metadata;
};

nb::object load(nb::object path, nb::object as, nb::object device) {
  as = conversion_from(as, device);
  const std::string name = file_name(path);
  auto file = [&] {
    const WithoutGil unlocked;
    return SafetensorsFile::open(name);
  }();
  SafetensorsFile opened = unwrap(std::move(file));
  SafetensorsMetadata metadata = opened.metadata();
  if (!as.is_none()) return converted(std::move(opened).tensors(), as);
  return nb::cast(LoadedDict{std::move(opened).tensors(), std::move(metadata)});
}

/// Copies the entries of a Python dict.
void set_all(SafetensorsMetadata& metadata, const nb::dict& given) {
  for (auto [key, text] : given) {
    if (!PyUnicode_Check(key.ptr()) || !PyUnicode_Check(text.ptr()))
      raise_type_error("metadata is a mapping from str to str");
    const auto name = nb::cast<std::string>(key);
    const auto known = std::find_if(metadata.begin(), metadata.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (known == metadata.end())
      metadata.emplace_back(name, nb::cast<std::string>(text));
    else
      known->second = nb::cast<std::string>(text);
  }
}

void save(nb::object path, nb::object batch, nb::dict metadata) {
  const std::string name = file_name(path);
  const TensorDict dict = dict_for_file(batch);
  SaveOptions options;
  if (nb::isinstance<LoadedDict>(batch)) options.metadata = nb::cast<LoadedDict&>(batch).metadata;
  set_all(options.metadata, metadata);
  auto saved = [&] {
    const WithoutGil unlocked;
    return save_safetensors(name, dict, options);
  }();
  unwrap(std::move(saved));
}

nb::dict texts_of(const LoadedDict& self) {
  nb::dict texts;
  for (const auto& [key, text] : self.metadata) texts[nb::cast(key)] = nb::cast(text);
  return texts;
}

void bind_loaded_dict(nb::module_& module) {
  nb::class_<LoadedDict, TensorDict>(
      module, "LoadedDict",
      "A TensorDict of a file: save() writes its metadata again. A dict or TensorDict of it,\n"
      "and what a peer gets, is without.")
      .def_prop_ro(
          "metadata", texts_of,
          "The texts that other programs wrote in the head of the file: {'format': 'pt'}. A copy.",
          nb::sig("def metadata(self) -> dict[str, str]"))
      .def("__copy__", [](const LoadedDict& self) { return self; })
      .def(
          "__deepcopy__",
          [](const LoadedDict& self, nb::handle /*memo*/) {
            return LoadedDict{private_copy(self), self.metadata};
          },
          nb::arg("memo").none())
      .def(
          "__reduce__",
          [](const LoadedDict& self) {
            return nb::make_tuple(unpickling("loaded"),
                                  nb::make_tuple(parts_of(self), texts_of(self)));
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def_static("_of", [](const TensorDict& batch, const nb::dict& texts) {
        LoadedDict loaded{batch, {}};
        set_all(loaded.metadata, texts);
        return loaded;
      });
}

}  // namespace

void bind_safetensors(nb::module_& module) {
  bind_loaded_dict(module);
  module.def("load", load, nb::arg("path").none(), nb::kw_only(),
             nb::arg("as_").none() = nb::none(), nb::arg("device").none() = nb::none(),
             "The batch in a safetensors file, as views on the mapped file.\n\n"
             "Writes to them stay in this process.\n"
             "as_, device: as those of Pipe.recv; torch (the module) makes what\n"
             "torch.nn.Module.load_state_dict takes. Left out: a LoadedDict.\n\n"
             "Raises FileNotFound, CorruptData, LimitExceeded, UnsupportedDType,\n"
             "UnsupportedDevice.",
             nb::sig("def load(path: str | os.PathLike[str], *, as_: typing.Any = None, device: "
                     "object = None) -> typing.Any"));
  module.def("save", save, nb::arg("path").none(), nb::arg("batch").none(), nb::kw_only(),
             nb::arg("metadata") = nb::dict(),
             "Saves a batch as a safetensors file: as a whole or not at all.\n\n"
             "Nesting, values and batch sizes are kept as tensordict keeps them.\n"
             "metadata: further texts for the file's head, in place of those of the same name\n"
             "in what load() gave.",
             nb::sig("def save(path: str | os.PathLike[str], batch: object, *, metadata: "
                     "dict[str, str] = {}) -> None"));
}

}  // namespace tendon::python
