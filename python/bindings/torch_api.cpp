// SPDX-License-Identifier: Apache-2.0
#include "torch_api.hpp"

#include <nanobind/stl/string.h>

#include <string>
#include <tendon/tensor/dlpack.hpp>
#include <utility>

#include "arrays_out.hpp"
#include "dlpack_exchange.hpp"
#include "dtypes.hpp"

namespace tendon::python {
namespace {

/// Null unless the type has a table of a known layout.
const DLPackExchangeAPI* exchange_api_of(nb::handle type) {
  const nb::object capsule = nb::getattr(type, kExchangeAttribute, nb::none());
  if (PyCapsule_IsValid(capsule.ptr(), kExchangeCapsule) == 0) return nullptr;
  auto* header = static_cast<const DLPackExchangeAPIHeader*>(
      PyCapsule_GetPointer(capsule.ptr(), kExchangeCapsule));
  while (header != nullptr && header->version.major != dlpack::kMajorVersion)
    header = header->prev_api;
  const auto* const api = reinterpret_cast<const DLPackExchangeAPI*>(header);
  const bool usable = api != nullptr && api->dltensor_from_py_object_no_sync != nullptr &&
                      api->managed_tensor_to_py_object_no_sync != nullptr;
  return usable ? api : nullptr;
}

/// Objects that are looked up once. Their references are never released, as torch is never
/// unloaded.
class Torch {
 public:
  /// Null while torch is not imported, or only partly.
  static const Torch* imported() {
    static const Torch* found = nullptr;
    if (found != nullptr) return found;
    const nb::handle module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
    if (!module.is_valid()) return nullptr;
    nb::object tensor = nb::getattr(module, "Tensor", nb::none());
    nb::object parameter =
        nb::getattr(nb::getattr(module, "nn", nb::none()), "Parameter", nb::none());
    if (PyType_Check(tensor.ptr()) == 0 || PyType_Check(parameter.ptr()) == 0) return nullptr;
    return found = new Torch(std::move(tensor), std::move(parameter));
  }

  [[nodiscard]] bool is_tensor(nb::handle object) const {
    return PyObject_TypeCheck(object.ptr(), reinterpret_cast<PyTypeObject*>(tensor_.ptr())) != 0;
  }
  /// The table, if the object's type is one that the table serves.
  [[nodiscard]] const DLPackExchangeAPI* api_for(nb::handle object) const {
    const nb::handle type = object.type();
    return type.is(tensor_) || type.is(parameter_) ? api_ : nullptr;
  }
  [[nodiscard]] const DLPackExchangeAPI* api() const { return api_; }

  [[nodiscard]] bool is_negated(nb::handle tensor) const { return nb::cast<bool>(is_neg_(tensor)); }
  [[nodiscard]] bool is_conjugated(nb::handle tensor) const {
    return nb::cast<bool>(is_conj_(tensor));
  }
  /// DLPack has no code for torch.int4 and similar types, and calls them bytes.
  [[nodiscard]] bool is_of(nb::handle tensor, DType dtype) const {
    if (dtype != DType::u8 && dtype != DType::i8) return true;
    return nb::object(tensor.attr(dtype_)).is(dtype == DType::u8 ? uint8_ : int8_);
  }

 private:
  Torch(nb::object tensor, nb::object parameter)
      : api_(exchange_api_of(tensor)),
        is_neg_(nb::object(tensor.attr("is_neg")).release()),
        is_conj_(nb::object(tensor.attr("is_conj")).release()),
        dtype_(PyUnicode_InternFromString("dtype")),
        uint8_(nb::object(nb::module_::import_("torch").attr("uint8")).release()),
        int8_(nb::object(nb::module_::import_("torch").attr("int8")).release()),
        tensor_(tensor.release()),
        parameter_(parameter.release()) {}

  const DLPackExchangeAPI* api_;
  nb::handle is_neg_;
  nb::handle is_conj_;
  nb::handle dtype_;
  nb::handle uint8_;
  nb::handle int8_;
  nb::handle tensor_;
  nb::handle parameter_;
};

bool is_row_major(const dlpack::DLTensor& view) {
  if (view.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = view.ndim - 1; i >= 0; --i) {
    if (view.shape[i] == 0) return true;
    if (view.shape[i] != 1 && view.strides[i] != expected) return false;
    expected *= view.shape[i];
  }
  return true;
}

/// True if torch's C function accepts the tensor. It leaks a refused tensor: one with negative
/// strides, or of an element type that torch lacks.
bool torch_takes(const Tensor& tensor) {
  const DType dtype = tensor.dtype();
  return tensor.is_contiguous() && dtype != DType::f8_e3m4 && dtype != DType::f8_e4m3 &&
         dtype != DType::f8_e4m3b11fnuz;
}

}  // namespace

std::optional<PlainMemory> plain_tensor(nb::handle object) {
  const Torch* const torch = Torch::imported();
  if (torch == nullptr || torch->api_for(object) == nullptr) return std::nullopt;
  // Checked before the view is taken: these calls let other threads run.
  if (torch->is_negated(object)) return std::nullopt;
  const auto view = exchanged_view(object);
  if (!view || view->device.device_type != static_cast<std::int32_t>(DeviceKind::cpu) ||
      view->dtype.lanes != 1 || !is_row_major(*view))
    return std::nullopt;
  const auto dtype = dtype_from_dlpack({view->dtype.code, view->dtype.bits});
  const auto shape = Shape::make({view->shape, static_cast<std::size_t>(view->ndim)});
  if (!dtype || !shape || !torch->is_of(object, *dtype)) return std::nullopt;
  const auto size_bytes = shape->size_bytes(*dtype);
  if (!size_bytes || (view->data == nullptr && *size_bytes != 0)) return std::nullopt;
  const bool is_complex = *dtype == DType::c32 || *dtype == DType::c64 || *dtype == DType::c128;
  if (is_complex && torch->is_conjugated(object)) return std::nullopt;
  return PlainMemory{static_cast<std::byte*>(view->data) + view->byte_offset, *dtype, *shape,
                     false};
}

bool called_by_torch() {
  if (Torch::imported() == nullptr) return false;
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  const auto module_of = [](nb::handle at) {
    return std::string(nb::str(at.attr("f_globals").attr("get")("__name__", "")).c_str());
  };
  if (frame.is_valid() && module_of(frame) == "tendon._arrays") frame = frame.attr("f_back");
  if (!frame.is_valid() || frame.is_none()) return false;
  const std::string module = module_of(frame);
  return module == "torch" || module.starts_with("torch.");
}

bool is_torch_tensor(nb::handle object) {
  const Torch* const torch = Torch::imported();
  return torch != nullptr && torch->is_tensor(object);
}

const char* why_no_access(nb::handle object) {
  const auto says = [&](const char* method) { return nb::cast<bool>(object.attr(method)()); };
  if (nb::cast<bool>(object.attr("is_nested"))) {
    return "it is a jagged tensor; send its values and offsets as two entries, "
           "torch.nested.to_padded_tensor(it, 0), or a LazyStackedTensorDict";
  }
  // DLPack calls torch.int1 to torch.uint7 bytes.
  const nb::object element_type = object.attr("dtype");
  const std::string dtype = nb::str(element_type).c_str();
  if ((dtype.starts_with("torch.int") || dtype.starts_with("torch.uint")) &&
      !dtype_from_array_name(dtype)) {
    return "its elements have fewer bits than a byte, and their type would be lost; its "
           "view(torch.uint8) has the same bytes";
  }
  if (says("is_conj")) {
    return "its conjugate bit is set: the memory holds the conjugates of its elements; its "
           "resolve_conj() makes a tensor that is legal";
  }
  if (says("is_neg")) {
    return "its negative bit is set: the memory holds the negatives of its elements; its "
           "resolve_neg() makes a tensor that is legal";
  }
  if (says("_is_zerotensor"))
    return "it is a zerotensor, whose zeros have no memory; its clone() makes a tensor that is "
           "legal";
  return nullptr;
}

std::optional<dlpack::DLTensor> exchanged_view(nb::handle object) {
  const DLPackExchangeAPI* const api = Torch::imported()->api_for(object);
  if (api == nullptr) return std::nullopt;
  dlpack::DLTensor view;
  if (api->dltensor_from_py_object_no_sync(object.ptr(), &view) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  return view;
}

std::uintptr_t torch_stream(int device) {
  const DLPackExchangeAPI* const api = Torch::imported()->api();
  void* stream = nullptr;
  if (api != nullptr && api->current_work_stream != nullptr) {
    if (api->current_work_stream(static_cast<std::int32_t>(DeviceKind::cuda), device, &stream) != 0)
      throw nb::python_error();
    return reinterpret_cast<std::uintptr_t>(stream);
  }
  const nb::object cuda = nb::module_::import_("torch.cuda");
  return nb::cast<std::uintptr_t>(cuda.attr("current_stream")(device).attr("cuda_stream"));
}

nb::object storage_of(nb::handle object) { return object.attr("untyped_storage")(); }

nb::object to_torch(Tensor tensor) {
  const Torch* const torch = Torch::imported();
  // A tensor on a GPU takes the Python path, where torch's stream waits for the memory.
  if (torch == nullptr || torch->api() == nullptr || tensor.access() == Access::read_only ||
      tensor.device() != cpu() || !torch_takes(tensor))
    return nb::module_::import_("torch").attr("from_dlpack")(to_array(std::move(tensor)));
  void* made = nullptr;
  if (torch->api()->managed_tensor_to_py_object_no_sync(to_dlpack(tensor), &made) != 0)
    throw nb::python_error();
  return nb::steal(static_cast<PyObject*>(made));
}

}  // namespace tendon::python
