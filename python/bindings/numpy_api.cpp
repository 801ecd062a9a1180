// SPDX-License-Identifier: Apache-2.0
#include "numpy_api.hpp"

// A module built with the headers of NumPy 2 runs with any NumPy from this version on;
// pyproject.toml requires the same one.
#define NPY_TARGET_VERSION NPY_1_24_API_VERSION
#define NPY_NO_DEPRECATED_API NPY_1_24_API_VERSION
#include <numpy/arrayobject.h>

#include <array>
#include <tendon/tensor/limits.hpp>

#include "errors.hpp"

namespace tendon::python {
namespace {

static_assert(sizeof(int) == 4 && sizeof(long) == 8);

/// Loads the table of NumPy's functions, which all the PyArray_ names below use. The import may let
/// another thread run and import too; both get the same table.
void need_numpy() {
  // _import_array() raises its error; import_array() would print it and raise another.
  if (PyArray_API == nullptr && _import_array() != 0) throw nb::python_error();
}

std::optional<DType> dtype_of(int type_number) {
  switch (type_number) {
    case NPY_BOOL:
      return DType::boolean;
    case NPY_BYTE:
      return DType::i8;
    case NPY_UBYTE:
      return DType::u8;
    case NPY_SHORT:
      return DType::i16;
    case NPY_USHORT:
      return DType::u16;
    case NPY_INT:
      return DType::i32;
    case NPY_UINT:
      return DType::u32;
    case NPY_LONG:
    case NPY_LONGLONG:
      return DType::i64;
    case NPY_ULONG:
    case NPY_ULONGLONG:
      return DType::u64;
    case NPY_HALF:
      return DType::f16;
    case NPY_FLOAT:
      return DType::f32;
    case NPY_DOUBLE:
      return DType::f64;
    case NPY_CFLOAT:
      return DType::c64;
    case NPY_CDOUBLE:
      return DType::c128;
    default:
      return std::nullopt;
  }
}

int type_number_of(DType dtype) {
  for (const int number :
       {NPY_FLOAT, NPY_DOUBLE, NPY_INT64, NPY_INT32, NPY_UINT8, NPY_BOOL, NPY_INT8, NPY_INT16,
        NPY_UINT16, NPY_UINT32, NPY_UINT64, NPY_HALF, NPY_CFLOAT, NPY_CDOUBLE})
    if (dtype_of(number) == dtype) return number;
  return NPY_NOTYPE;  // unreachable: every type with a format has a case
}

}  // namespace

std::optional<PlainMemory> plain_array(nb::handle object) {
  if (PyArray_API == nullptr) {
    // No NumPy array exists before the program imports NumPy, so nothing is imported here.
    if (PyDict_GetItemString(PyImport_GetModuleDict(), "numpy") == nullptr) return std::nullopt;
    need_numpy();
  }
  if (!PyArray_CheckExact(object.ptr())) return std::nullopt;
  auto* const array = reinterpret_cast<PyArrayObject*>(object.ptr());
  if (!PyArray_ISCARRAY_RO(array)) return std::nullopt;
  const auto dtype = dtype_of(PyArray_TYPE(array));
  if (!dtype) return std::nullopt;
  const auto shape =
      Shape::make({PyArray_DIMS(array), static_cast<std::size_t>(PyArray_NDIM(array))});
  // Too many dimensions: the general path words the refusal.
  if (!shape || !shape->size_bytes(*dtype)) return std::nullopt;
  return PlainMemory{static_cast<std::byte*>(PyArray_DATA(array)), *dtype, *shape,
                     !PyArray_ISWRITEABLE(array)};
}

nb::object make_array(const Tensor& tensor, nb::object owner, nb::handle type) {
  need_numpy();
  const auto item_bytes = static_cast<npy_intp>(item_size_bytes(tensor.dtype()));
  std::array<npy_intp, kMaxDimensions> shape;
  std::array<npy_intp, kMaxDimensions> strides;
  const std::size_t count = tensor.dimension_count();
  for (std::size_t i = 0; i < count; ++i) {
    shape[i] = tensor.shape()[i];
    strides[i] = tensor.strides()[i] * item_bytes;
  }
  PyArray_Descr* const descr = PyArray_DescrFromType(type_number_of(tensor.dtype()));
  if (descr == nullptr) throw nb::python_error();
  // NumPy allocates memory for a null pointer. It does not write to this byte.
  static std::byte nothing[1];
  auto* const data = const_cast<std::byte*>(tensor.data());
  nb::object array = nb::steal(PyArray_NewFromDescr(
      type.is_valid() ? reinterpret_cast<PyTypeObject*>(type.ptr()) : &PyArray_Type, descr,
      static_cast<int>(count), shape.data(), strides.data(), data == nullptr ? nothing : data,
      tensor.access() == Access::read_only ? 0 : NPY_ARRAY_WRITEABLE, nullptr));
  if (!array.is_valid()) throw nb::python_error();
  auto* const made = reinterpret_cast<PyArrayObject*>(array.ptr());
  if (PyArray_SetBaseObject(made, owner.release().ptr()) != 0) throw nb::python_error();
  return array;
}

}  // namespace tendon::python
