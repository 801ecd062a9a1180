// SPDX-License-Identifier: Apache-2.0
#include "tensordict_api.hpp"

#include <string>
#include <string_view>
#include <tendon/tensor/path.hpp>
#include <vector>

#include "arrays_in.hpp"
#include "bindings.hpp"
#include "dicts.hpp"
#include "errors.hpp"
#include "torch_api.hpp"
#include "values.hpp"

namespace tendon::python {
namespace {

/// The last name of a path.
nb::str name_in(std::string_view path) {
  const std::string_view last = path.substr(path.rfind('/') + 1);  // all of it without a slash
  if (last.find('%') == std::string_view::npos) return nb::str(last.data(), last.size());
  const std::string name = unwrap(parse_path(last)).front();
  return nb::str(name.data(), name.size());
}

std::string path_in(const std::string& place, nb::handle key) {
  const std::string name = path_of(key);
  return place.empty() ? name : place + "/" + name;
}

void add_level(TensorDict& dict, const std::string& place, nb::handle level) {
  for (auto [key, entry] : nb::borrow<nb::dict>(level[2])) {
    const std::string path = path_in(place, key);
    if (PyTuple_CheckExact(entry.ptr())) {
      unwrap(dict.try_set(path, dict_without_entries(entry[0], entry[1])));
      add_level(dict, path, entry);
    } else if (auto tensor = tensor_from(entry, "'" + path + "'")) {
      unwrap(dict.try_set(path, *std::move(tensor)));
    } else {
      raise_type_error("'" + path + "' is a " + quoted_type(entry) + ", which is no array");
    }
  }
  for (auto [key, value] : nb::borrow<nb::dict>(level[3])) {
    const std::string path = path_in(place, key);
    unwrap(dict.try_set(path, any_value_from(value, "'" + path + "'")));
  }
}

std::string_view place_of(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

}  // namespace

nb::handle tensordict_adapter() {
  static PyObject* imported = nullptr;  // never released: the module is never unloaded
  if (imported == nullptr &&
      PyDict_GetItemString(PyImport_GetModuleDict(), "tensordict") != nullptr)
    imported = nb::module_::import_("tendon.tensordict").release().ptr();
  return imported;
}

bool is_plain_tensordict(nb::handle object) {
  static PyObject* type = nullptr;
  if (type == nullptr) {
    const nb::handle adapter = tensordict_adapter();
    if (!adapter.is_valid()) return false;
    type = nb::object(adapter.attr("TensorDict")).release().ptr();
  }
  return object.type().is(type) && nb::getattr(object, "_consolidated", nb::none()).is_none();
}

TensordictLevel::TensordictLevel(nb::handle object)
    : batch_size_(object.attr("batch_size")),
      names_(object.attr("names")),
      device_(object.attr("device")),
      is_locked_(nb::cast<bool>(object.attr("is_locked"))) {}

bool TensordictLevel::equals(const TensordictLevel& other) const {
  return batch_size_.equal(other.batch_size_) && names_.equal(other.names_) &&
         device_.equal(other.device_) && is_locked_ == other.is_locked_;
}

nb::object tensordict_items(nb::handle object) { return object.attr("items")(); }

TensorDict dict_of_levels(const nb::tuple& root) {
  TensorDict dict = dict_without_entries(root[0], root[1]);
  add_level(dict, "", root);
  return dict;
}

BatchLevel levels_of(const TensorDict& batch) {
  const Schema& schema = *batch.schema();
  std::vector<BatchLevel> levels;
  levels.reserve(schema.nodes().size());
  for (const SchemaNode& node : schema.nodes())
    levels.push_back({tuple_of(node.batch_size), names_or_none(node.dimension_names), {}, {}});
  if (batch.values() != nullptr) {
    for (const auto& [path, value] : batch.values()->as_map())
      levels[schema.find_node(place_of(path)).value()].values[name_in(path)] = to_object(value);
  }
  // Each node follows its parent, so the reverse order completes children first.
  for (std::size_t i = levels.size(); i-- > 0;) {
    for (const SchemaEntry& entry : schema.nodes()[i].entries) {
      if (entry.kind == SchemaEntry::Kind::leaf) {
        levels[i].entries[name_in(schema.leaves()[entry.index].path)] =
            to_torch(batch.leaf(entry.index));
      } else {
        levels[i].entries[name_in(schema.nodes()[entry.index].path)] =
            nb::cast(std::move(levels[entry.index]));
      }
    }
  }
  return std::move(levels.front());
}

void bind_batch_level(nb::module_& module) {
  nb::class_<BatchLevel>(module, "_BatchLevel")
      .def_ro("batch_size", &BatchLevel::batch_size)
      .def_ro("names", &BatchLevel::names)
      .def_ro("entries", &BatchLevel::entries)
      .def_ro("values", &BatchLevel::values);
}

}  // namespace tendon::python
