// SPDX-License-Identifier: Apache-2.0
#include "copies.hpp"

#include <nanobind/stl/string.h>

#include <cstring>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <tendon/tensor/path.hpp>
#include <utility>

#include "arrays_in.hpp"
#include "arrays_out.hpp"
#include "dicts.hpp"
#include "dtypes.hpp"
#include "errors.hpp"
#include "gpu_order.hpp"
#include "tensor/on_cpu.hpp"
#include "values.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

void copy_to(std::byte* to, Bytes from) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

Result<TensorDict> copied(const TensorDict& batch) {
  TENDON_TRY(made, TensorDict::allocate(batch.schema()));
  const PackedView& memory = *packed_view(made);
  for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
    TENDON_TRY(leaf, batch.leaf(i).contiguous());
    copy_to(const_cast<std::byte*>(leaf_view(made, i).data), leaf.bytes());
  }
  return make_packed(memory.schema, memory.layout, memory.storage, batch.values());
}

Result<Storage> copied(const Storage& bytes) {
  TENDON_TRY(made, Storage::allocate(bytes.size_bytes()));
  copy_to(made.data(), bytes.bytes());
  return made;
}

Result<Tensor> copied(const Tensor& tensor) {
  TENDON_TRY(whole, tensor.contiguous());
  return Tensor::from_bytes(tensor.dtype(), tensor.shape(), whole.bytes());
}

TensorDict of_parts(nb::handle parts) {
  TensorDict batch = dict_without_entries(parts[0], parts[1]);
  for (nb::handle pair : parts[2]) {
    const std::string path = path_of(pair[0]);
    const std::string name = "'" + path + "'";
    const nb::object entry = pair[1];
    if (PyTuple_CheckExact(entry.ptr()) != 0)
      unwrap(batch.try_set(path, of_parts(entry)));
    else if (auto tensor = tensor_from(entry, name))
      unwrap(batch.try_set(path, *std::move(tensor)));
    else
      unwrap(batch.try_set(path, any_value_from(entry, name)));
  }
  return batch;
}

[[noreturn]] void refuse_change(nb::handle key) {
  const auto shown = nb::cast<std::string>(nb::repr(key));
  raise_type_error("a batch has the entries that it came with, so " + shown +
                   " is not set or deleted; legal are a dict of it, {**batch, " + shown +
                   ": new}, which shares its arrays, and to write into an array of it, "
                   "batch[name][...] = new");
}

}  // namespace

nb::tuple parts_of(const TensorDict& batch) {
  nb::list entries;
  for (const std::string& name : batch.keys()) {
    nb::object entry = entry_of(batch, escape_name(name));
    if (nb::isinstance<TensorDict>(entry)) entry = parts_of(nb::cast<const TensorDict&>(entry));
    entries.append(nb::make_tuple(nb::str(name.data(), name.size()), entry));
  }
  return nb::make_tuple(tuple_of(batch.batch_size()), names_or_none(batch.dimension_names()),
                        entries);
}

nb::object unpickling(const char* function) {
  return nb::module_::import_("tendon._pickles").attr(function);
}

TensorDict private_copy(const TensorDict& batch) {
  if (batch.leaf_count() == 0) return batch;
  unwrap(detail::check_on_cpu(batch, "python.copy"));
  return unwrap(without_gil([&] { return copied(batch); }));
}

Tensor private_copy(const Tensor& tensor) {
  if (tensor.device() != cpu()) refuse_gpu(tensor, "Python");
  return unwrap(without_gil([&] { return copied(tensor); }));
}

Storage private_copy(const Storage& bytes) {
  if (bytes.size_bytes() == 0) return bytes;
  return unwrap(without_gil([&] { return copied(bytes); }));
}

namespace {

constexpr const char* kReduce = "def __reduce__(self) -> tuple[typing.Any, ...]";

}  // namespace

void bind_copies(nb::class_<TensorDict>& type) {
  type.def("__copy__", [](const TensorDict& self) { return self; })
      .def(
          "__deepcopy__",
          [](const TensorDict& self, nb::handle /*memo*/) { return private_copy(self); },
          nb::arg("memo").none())
      .def(
          "__reduce__",
          [](const TensorDict& self) {
            return nb::make_tuple(unpickling("batch"), nb::make_tuple(parts_of(self)));
          },
          nb::sig(kReduce))
      .def_static("_of_parts", of_parts)
      .def(
          "__setitem__", [](const TensorDict&, nb::object key, nb::object) { refuse_change(key); },
          nb::arg("key").none(), nb::arg("value").none(),
          nb::sig("def __setitem__(self, key: object, value: object) -> typing.NoReturn"))
      .def(
          "__delitem__", [](const TensorDict&, nb::object key) { refuse_change(key); },
          nb::arg("key").none(), nb::sig("def __delitem__(self, key: object) -> typing.NoReturn"));
}

void bind_copies(nb::class_<Tensor>& type) {
  type.def("__copy__", [](const Tensor& self) { return self; })
      .def(
          "__deepcopy__",
          [](const Tensor& self, nb::handle /*memo*/) { return private_copy(self); },
          nb::arg("memo").none())
      .def(
          "__reduce__",
          [](const Tensor& self) {
            if (self.device() != cpu()) refuse_gpu(self, "Python");
            const Tensor whole = unwrap(self.contiguous());
            const auto offset = static_cast<std::uint64_t>(whole.data() - whole.storage().data());
            const auto count = static_cast<std::int64_t>(whole.size_bytes());
            const Tensor bytes =
                unwrap(Tensor::view(whole.storage(), offset, DType::u8, Shape{count}));
            return nb::make_tuple(unpickling("tensor"),
                                  nb::make_tuple(std::string(full_name(self.dtype())),
                                                 tuple_of(self.shape()), to_array(bytes)));
          },
          nb::sig(kReduce));
}

}  // namespace tendon::python
