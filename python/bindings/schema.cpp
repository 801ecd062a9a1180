// SPDX-License-Identifier: Apache-2.0
#include "schema.hpp"

#include <nanobind/stl/string.h>

#include <tendon/tensor/limits.hpp>
#include <vector>

#include "bindings.hpp"
#include "dicts.hpp"
#include "errors.hpp"

namespace tendon::python {
namespace {

constexpr const char* kSchemaDoc =
    "The layout of a batch: names, element types and shapes, nested.\n\n"
    "Schema({'image': ('uint8', (3, 64, 64)), 'info': {'reward': ('float32', ())}})\n"
    "Element types are full names ('float32', 'bfloat16'), types of NumPy and torch,\n"
    "and Tendon's short names ('f32') where NumPy reads nothing else there: 'i8' is\n"
    "refused, which has 8 bits here and 64 for NumPy.\n"
    "Schema.of(batch) is that of a batch. It never changes.";

void collect(nb::handle mapping, const std::string& prefix, std::size_t depth,
             std::vector<LeafSpec>& leaves) {
  if (depth > kMaxDepth) raise_value_error("the schema is nested deeper than 32 levels");
  const nb::object items = nb::steal(PyMapping_Items(mapping.ptr()));
  if (!items.is_valid()) throw nb::python_error();
  for (nb::handle item : items) {
    const std::string name = path_of(item[0]);
    const std::string path = prefix.empty() ? name : prefix + "/" + name;
    refuse_mark(path);
    const nb::object what = item[1];
    if (is_mapping(what)) {
      collect(what, path, depth + 1, leaves);
    } else if (PyTuple_Check(what.ptr()) && nb::len(what) == 2) {
      leaves.push_back({path, dtype_of_object(what[0]), shape_from(what[1])});
    } else {
      raise_type_error("'" + path + "' is a " + quoted_type(what) +
                       "; legal are (dtype, shape) and mappings of these");
    }
  }
}

nb::dict leaves_of(const SchemaHandle& self) {
  nb::dict leaves;
  for (const SchemaLeaf& leaf : self.schema->leaves()) {
    nb::list sizes;
    for (const std::int64_t size : leaf.shape.span()) sizes.append(size);
    leaves[leaf.path.c_str()] =
        nb::make_tuple(std::string(full_name(leaf.dtype)), nb::tuple(sizes));
  }
  return leaves;
}

}  // namespace

Shape shape_from(nb::handle shape) {
  std::vector<std::int64_t> sizes;
  const auto add = [&](nb::handle size) {
    std::int64_t number = -1;
    if (PyIndex_Check(size.ptr()) == 0 || PyBool_Check(size.ptr()) ||
        !nb::try_cast(nb::steal(PyNumber_Index(size.ptr())), number)) {
      raise_type_error("a shape is " + shown(shape) +
                       "; legal are whole numbers from 0, and tuples and lists of them");
    }
    sizes.push_back(number);
  };
  if (PyIndex_Check(shape.ptr()) != 0) {
    add(shape);
  } else {
    const nb::object items = nb::steal(PySequence_List(shape.ptr()));
    if (!items.is_valid()) PyErr_Clear();
    if (!items.is_valid() || PyUnicode_Check(shape.ptr()) || PyBytes_Check(shape.ptr()))
      add(shape);  // raises with the legal values
    for (nb::handle size : items) add(size);
  }
  return unwrap(Shape::make(sizes));
}

std::shared_ptr<const Schema> schema_from(nb::handle object) {
  if (nb::isinstance<SchemaHandle>(object)) return nb::cast<const SchemaHandle&>(object).schema;
  if (nb::isinstance<TensorDict>(object)) return nb::cast<const TensorDict&>(object).schema();
  if (!is_mapping(object)) {
    raise_type_error("a " + quoted_type(object) +
                     " is no schema; legal is a mapping from names to (dtype, shape)");
  }
  std::vector<LeafSpec> leaves;
  collect(object, "", 0, leaves);
  return unwrap(Schema::make(leaves));
}

void bind_schema(nb::module_& module) {
  nb::class_<SchemaHandle>(module, "Schema", kSchemaDoc)
      .def(
          "__init__",
          [](SchemaHandle* self, nb::object leaves) {
            new (self) SchemaHandle{schema_from(leaves)};
          },
          nb::arg("leaves").none(),
          nb::sig("def __init__(self, leaves: collections.abc.Mapping[str, object]) -> None"))
      .def_static(
          "of", [](nb::object batch) { return SchemaHandle{dict_from(batch).schema()}; },
          nb::arg("batch").none(), "The schema of a batch.",
          nb::sig("def of(batch: collections.abc.Mapping[str, object]) -> Schema"))
      .def_prop_ro("leaves", leaves_of, "Path -> (dtype, shape), in order.",
                   nb::sig("def leaves(self) -> dict[str, tuple[str, tuple[int, ...]]]"))
      .def_prop_ro(
          "nbytes", [](const SchemaHandle& self) { return self.schema->size_bytes(); },
          "Bytes of all elements, without padding.")
      .def(
          "__eq__",
          [](const SchemaHandle& self, nb::object other) {
            return nb::isinstance<SchemaHandle>(other) &&
                   *self.schema == *nb::cast<const SchemaHandle&>(other).schema;
          },
          nb::arg("other").none(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const SchemaHandle& self) {
             return nb::hash(nb::cast(to_string(self.schema->hash())));
           })
      .def("__repr__", [](const SchemaHandle& self) {
        return "tendon.Schema(" + nb::cast<std::string>(nb::repr(leaves_of(self))) + ")";
      });
}

}  // namespace tendon::python
