// SPDX-License-Identifier: Apache-2.0
#include "dicts.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <sstream>
#include <string_view>
#include <tendon/tensor/limits.hpp>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/path.hpp>

#include "arrays_in.hpp"
#include "arrays_out.hpp"
#include "bindings.hpp"
#include "copies.hpp"
#include "errors.hpp"
#include "plain_memory.hpp"
#include "same_again.hpp"
#include "tensor/on_cpu.hpp"
#include "tensordict_api.hpp"
#include "torch_api.hpp"
#include "values.hpp"

namespace tendon::python {
namespace {

// The attributes of a tensordict besides its entries: tendon/_mark.py has the rules.
constexpr std::string_view kMark = "__tensordict__";

constexpr const char* kDictDoc =
    "A received batch: a Mapping from names to arrays, values and mappings of\n"
    "these, nested as it was sent.\n\n"
    "Arrays are views on the memory that the message arrived in and keep it\n"
    "alive, also after pipe, context and sender have ended. They may be written to.\n"
    "batch['info', 'step'] is batch['info']['step']. TensorDict(mapping) shares\n"
    "the memory of the arrays in it.";

std::string name_of(nb::handle key, const std::string& place = "") {
  if (!PyUnicode_Check(key.ptr())) {
    const auto shown = nb::cast<std::string>(nb::repr(key));
    raise_type_error("a key " + (place.empty() ? "" : "in '" + place + "' ") + "is a " +
                     quoted_type(key) + ": " + shown + "; legal keys are of type 'str'");
  }
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(key.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return escape_name({text, static_cast<std::size_t>(size)});
}

/// Converts a tensordict.TensorDict or tensorclass with the adapter; nullopt for everything else.
std::optional<TensorDict> from_tensordict(nb::handle object, const char* maker = "to_batch") {
  const nb::handle adapter = tensordict_adapter();
  if (!adapter.is_valid() || !nb::cast<bool>(adapter.attr("is_tensordict")(object)))
    return std::nullopt;
  // The made batch has no other owner.
  const nb::object made = adapter.attr(maker)(object);
  return std::move(nb::cast<TensorDict&>(made));
}

/// Adds the content of one library's mapping to a TensorDict.
class Filler {
 public:
  explicit Filler(TensorDict& dict, SameAgain* notes = nullptr) : dict_(dict), notes_(notes) {}

  void add_all(nb::handle mapping, const std::string& prefix, std::size_t depth) {
    const nb::object items = nb::steal(PyMapping_Items(mapping.ptr()));
    if (!items.is_valid()) throw nb::python_error();
    for (nb::handle item : items) {
      if (depth >= kMaxDepth) {
        raise_value_error("the mapping at '" + prefix + "' is nested deeper than " +
                          std::to_string(kMaxDepth) + " levels, or contains itself");
      }
      const std::string name = name_of(item[0], prefix);
      const std::string path = prefix.empty() ? name : prefix + "/" + name;
      refuse_mark(path);
      add(item[0], item[1], path, depth);
    }
  }

 private:
  void add(nb::handle key, nb::handle object, const std::string& path, std::size_t depth) {
    const std::string name = "'" + path + "'";
    if (auto value = value_from(object, name)) {
      if (notes_ != nullptr) notes_->note_value(key, path, object, *value);
      return unwrap(dict_.try_set(path, *std::move(value)));
    }
    if (notes_ != nullptr) {
      if (const auto memory = plain_memory(object))
        return unwrap(dict_.try_set(path, notes_->note_array(key, path, object, *memory)));
      if (PyDict_Check(object.ptr()))
        notes_->note_dict(key, path, object);
      else
        notes_->note_other();
    }
    if (nb::isinstance<TensorDict>(object))
      return unwrap(dict_.try_set(path, nb::cast<const TensorDict&>(object)));
    // Tries arrays before other mappings: the check for a Mapping is slow.
    if (!PyDict_Check(object.ptr())) {
      if (auto tensor = tensor_from(object, name))
        return unwrap(dict_.try_set(path, *std::move(tensor)));
    }
    if (!PyDict_Check(object.ptr())) {
      if (const auto foreign = from_tensordict(object))
        return unwrap(dict_.try_set(path, *foreign));
    }
    if (is_mapping(object)) {
      unwrap(dict_.try_set(path, TensorDict()));
      return add_all(object, path, depth + 1);
    }
    raise_type_error(name + " is a " + quoted_type(object) +
                     "; legal are arrays (NumPy, torch, JAX, memoryview, anything with DLPack), "
                     "None, bool, int, float, str, lists of these, and mappings");
  }

  TensorDict& dict_;
  SameAgain* notes_;
};

nb::list names_of(const TensorDict& dict) {
  nb::list names;
  for (const std::string& name : dict.keys()) names.append(nb::str(name.data(), name.size()));
  return names;
}

nb::object collections_abc(const char* name) {
  return nb::module_::import_("collections.abc").attr(name);
}

void make_dict(TensorDict* self, nb::object mapping, nb::object batch_size, nb::object names) {
  // torch then makes a dict whose tensors stay tensors, as in default_collate.
  if (called_by_torch()) raise_type_error("a batch holds arrays, no tensors of torch");
  TensorDict dict = dict_without_entries(batch_size, names);
  if (dict.batch_size().empty() && dict.dimension_names().empty()) {
    new (self) TensorDict(dict_from(mapping));
    return;
  }
  Filler(dict).add_all(mapping, "", 0);
  new (self) TensorDict(std::move(dict));
}

}  // namespace

nb::tuple tuple_of(const Shape& shape) {
  nb::list sizes;
  for (const std::int64_t size : shape.span()) sizes.append(size);
  return nb::tuple(sizes);
}

nb::object names_or_none(const std::vector<std::string>& names) {
  if (names.empty()) return nb::none();
  nb::list list;
  for (const std::string& name : names)
    list.append(name.empty() ? nb::object(nb::none()) : nb::cast(name));
  return list;
}

TensorDict dict_without_entries(nb::handle batch_size, nb::handle names) {
  std::vector<std::int64_t> sizes;
  for (nb::handle size : batch_size) sizes.push_back(nb::cast<std::int64_t>(size));
  std::vector<std::string> dimension_names;
  bool named = false;
  if (!names.is_none()) {
    for (nb::handle name : names) {
      dimension_names.push_back(name.is_none() ? "" : nb::cast<std::string>(name));
      named = named || !name.is_none();
    }
  }
  const Shape shape = unwrap(Shape::make(sizes));
  if (sizes.empty() && !named) return {};
  return named ? TensorDict(shape, std::move(dimension_names)) : TensorDict(shape);
}

bool is_mapping(nb::handle object) {
  if (PyDict_Check(object.ptr()) || nb::isinstance<TensorDict>(object)) return true;
  // Asks the object itself: PyMapping_Check is true for arrays and text too.
  return PyMapping_Check(object.ptr()) != 0 && nb::isinstance(object, collections_abc("Mapping"));
}

void refuse_mark(std::string_view path) {
  const auto last = path.rfind('/') + 1;  // 0 without a separator
  if (path.substr(last) != kMark) return;
  raise_value_error("'" + std::string(path) +
                    "' is a name that Tendon keeps for itself; legal is any other");
}

TensorDict dict_from(nb::handle object) { return dict_from(object, nullptr); }

TensorDict dict_from(nb::handle object, SameAgain* notes) {
  if (notes != nullptr && PyDict_Check(object.ptr())) {
    TensorDict dict;
    Filler(dict, notes).add_all(object, "", 0);
    return dict;
  }
  if (auto dict = try_dict_from(object)) return *std::move(dict);
  raise_type_error("a " + quoted_type(object) +
                   " is no batch; legal is a mapping from names to arrays and values");
}

std::optional<TensorDict> try_dict_from(nb::handle object) {
  if (nb::isinstance<TensorDict>(object)) return nb::cast<const TensorDict&>(object);
  if (!PyDict_Check(object.ptr())) {
    if (auto foreign = from_tensordict(object)) return foreign;
  }
  if (!is_mapping(object)) return std::nullopt;
  TensorDict dict;
  Filler(dict).add_all(object, "", 0);
  return dict;
}

TensorDict dict_for_file(nb::handle object) {
  auto foreign = from_tensordict(object, "to_plain_batch");
  return foreign ? *std::move(foreign) : dict_from(object);
}

std::string path_of(nb::handle key) {
  if (!PyTuple_Check(key.ptr())) return name_of(key);
  std::string path;
  for (nb::handle part : key) path += (path.empty() ? "" : "/") + name_of(part);
  return path;
}

nb::object entry_of(const TensorDict& dict, const std::string& path) {
  if (const PackedView* const packed = packed_view(dict)) {
    if (const auto index = packed->schema->find(path)) return to_array(dict.leaf(*index));
  }
  const auto kind = dict.kind_of(path);
  if (kind == EntryKind::dict) return nb::cast(unwrap(dict.find_dict(path)));
  if (kind == EntryKind::value) return to_object(unwrap(dict.find_value(path)));
  return to_array(unwrap(dict.find(path)));
}

void bind_tensor_dict(nb::module_& module) {
  auto type =
      nb::class_<TensorDict>(module, "TensorDict", kDictDoc,
                             nb::sig("class TensorDict(collections.abc.Mapping[str, typing.Any])"));
  type.def("__init__", make_dict, nb::arg("mapping").none(), nb::kw_only(),
           nb::arg("batch_size") = nb::make_tuple(), nb::arg("names").none() = nb::none(),
           nb::sig("def __init__(self, mapping: collections.abc.Mapping[str, object], *, "
                   "batch_size: tuple[int, ...] = (), names: list[str | None] | None = None) -> "
                   "None"))
      .def(
          "__getitem__",
          [](const TensorDict& self, nb::object key) { return entry_of(self, path_of(key)); },
          nb::arg("key").none(),
          nb::sig("def __getitem__(self, key: str | tuple[str, ...]) -> typing.Any"))
      .def(
          "get",
          [](const TensorDict& self, nb::object key, nb::object fallback) {
            const std::string path = path_of(key);
            return self.contains(path) ? entry_of(self, path) : fallback;
          },
          nb::arg("key").none(), nb::arg("default").none() = nb::none(),
          nb::sig("def get(self, key: str | tuple[str, ...], default: typing.Any = None) -> "
                  "typing.Any"))
      .def("__contains__",
           [](const TensorDict& self, nb::object key) {
             return (PyUnicode_Check(key.ptr()) || PyTuple_Check(key.ptr())) &&
                    self.contains(path_of(key));
           })
      .def("__len__", [](const TensorDict& self) { return self.keys().size(); })
      .def(
          "__iter__", [](const TensorDict& self) { return nb::iter(names_of(self)); },
          nb::sig("def __iter__(self) -> typing.Iterator[str]"))
      .def(
          "keys", [](nb::object self) { return collections_abc("KeysView")(self); },
          nb::sig("def keys(self) -> typing.KeysView[str]"))
      .def(
          "values", [](nb::object self) { return collections_abc("ValuesView")(self); },
          nb::sig("def values(self) -> typing.ValuesView[typing.Any]"))
      .def(
          "items", [](nb::object self) { return collections_abc("ItemsView")(self); },
          nb::sig("def items(self) -> typing.ItemsView[str, typing.Any]"))
      .def_prop_ro(
          "batch_size", [](const TensorDict& self) { return tuple_of(self.batch_size()); },
          "The first dimensions that all arrays share; () for plain mappings.",
          nb::sig("def batch_size(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "names", [](const TensorDict& self) { return names_or_none(self.dimension_names()); },
          "Of the batch dimensions, or None.",
          nb::sig("def names(self) -> list[str | None] | None"))
      .def_prop_ro("nbytes", &TensorDict::size_bytes, "Bytes of all elements.")
      .def_static("_of_levels", dict_of_levels)
      .def("_levels", levels_of)
      .def("_set_value",
           [](TensorDict& self, nb::object names, nb::object value) {
             const std::string path = path_of(names);
             // Removes a value on the way to the path, as Pipe::recv_into does.
             for (auto at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
               const std::string_view above = std::string_view(path).substr(0, at);
               if (self.kind_of(above) == EntryKind::value) unwrap(self.erase(above));
             }
             unwrap(self.try_set(path, any_value_from(value, "'" + path + "'")));
           })
      .def("_packed_bytes",
           [](const TensorDict& self) {
             const PackedView* const packed = packed_view(self);
             if (packed == nullptr) raise_value_error("the batch is not in one run of bytes");
             unwrap(detail::check_on_cpu(self, "python.batch"));
             const auto size = packed->schema->layout(packed->layout).total_bytes;
             return unwrap(Tensor::view(packed->storage, 0, DType::u8,
                                        Shape{static_cast<std::int64_t>(size)}));
           })
      .def("_packed_by_tensordict",
           [](const TensorDict& self, const Tensor& buffer) {
             const Storage& whole = buffer.storage();
             const auto offset = static_cast<std::uint64_t>(buffer.data() - whole.data());
             return packed_in(self, whole.part(offset, buffer.size_bytes()), Layout::tensordict)
                 .value_or(self);
           })
      .def("__repr__", [](const TensorDict& self) {
        std::ostringstream text;
        text << full_names << self;
        return text.str();
      });
  bind_copies(type);
  collections_abc("Mapping").attr("register")(type);
}

}  // namespace tendon::python
