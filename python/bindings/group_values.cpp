// SPDX-License-Identifier: Apache-2.0
#include "group_values.hpp"

#include <optional>
#include <utility>

#include "arrays_in.hpp"
#include "dicts.hpp"
#include "errors.hpp"

namespace tendon::python {
namespace {

[[noreturn]] void refuse(nb::handle object, const std::string& name) {
  raise_type_error(name + " is a " + quoted_type(object) +
                   "; legal are arrays (NumPy, torch, JAX, anything with DLPack), mappings of "
                   "them, and lists of either; numpy.array(it) makes an array of a number");
}

bool is_list(nb::handle object) {
  return PyList_Check(object.ptr()) != 0 || PyTuple_Check(object.ptr()) != 0;
}

std::optional<Tensor> array_from(nb::handle object, const std::string& name, Touch touch) {
  auto tensor = PyDict_Check(object.ptr()) ? std::nullopt : tensor_from(object, name);
  if (tensor && touch == Touch::changes && tensor->access() == Access::read_only &&
      tensor->size_bytes() != 0) {
    throw to_exception({ErrorCode::read_only, "python.array",
                        name + " is a " + quoted_type(object) +
                            " that may only be read, and is to be changed in place; "
                            "numpy.array(it) makes one that may be written"});
  }
  return tensor;
}

}  // namespace

nb::object taken_once(nb::object values) {
  const bool is_view = PyObject_TypeCheck(values.ptr(), &PyDictValues_Type) != 0;
  if (PyIter_Check(values.ptr()) == 0 && !is_view) return values;
  nb::object list = nb::steal(PySequence_List(values.ptr()));
  if (!list.is_valid()) throw nb::python_error();
  return list;
}

GroupValues::GroupValues(nb::handle object, const std::string& name, Touch touch) {
  if (!is_list(object)) {
    if (auto tensor = array_from(object, name, touch))
      held_ = *std::move(tensor);
    else if (auto dict = try_dict_from(object))
      held_ = *std::move(dict);
    else
      refuse(object, name);
    return;
  }
  std::vector<Tensor> arrays;
  std::vector<TensorDict> dicts;
  std::size_t index = 0;
  for (const nb::handle item : object) {
    const std::string item_name = name + "[" + std::to_string(index++) + "]";
    if (auto tensor = array_from(item, item_name, touch))
      arrays.push_back(*std::move(tensor));
    else if (auto dict = is_list(item) ? std::nullopt : try_dict_from(item))
      dicts.push_back(*std::move(dict));
    else
      refuse(item, item_name);
    if (!arrays.empty() && !dicts.empty()) {
      raise_type_error(name + " holds arrays and mappings: " + item_name + " is a " +
                       quoted_type(item) + "; legal is a list of one kind");
    }
  }
  if (dicts.empty())
    held_ = std::move(arrays);
  else
    held_ = std::move(dicts);
}

Tensors GroupValues::tensors() const {
  return std::visit([](const auto& held) { return Tensors(held); }, held_);
}

std::uint64_t GroupValues::size_bytes() const {
  const auto sum = [](const auto& several) {
    std::uint64_t size = 0;
    for (const auto& each : several) size += each.size_bytes();
    return size;
  };
  if (const Tensor* const one = as_tensor()) return one->size_bytes();
  if (const auto* const dict = std::get_if<TensorDict>(&held_)) return dict->size_bytes();
  if (const auto* const arrays = std::get_if<std::vector<Tensor>>(&held_)) return sum(*arrays);
  return sum(std::get<std::vector<TensorDict>>(held_));
}

}  // namespace tendon::python
