// SPDX-License-Identifier: Apache-2.0
#include "numpy_api.hpp"

#include <array>
#include <tendon/tensor/limits.hpp>

#include "errors.hpp"

namespace tendon::python {
namespace {

// The part of the binary interface that has been the same from NumPy 1.7 to 2.x: places in the
// table of functions, flags, type numbers and the first members of two structs.
// https://numpy.org/doc/stable/reference/c-api/types-and-structures.html
constexpr int kTypeOfArrays = 2;
constexpr int kDescrFromType = 45;
constexpr int kNewFromDescr = 94;
constexpr int kSetBaseObject = 282;
constexpr int kRowMajor = 0x0001;
constexpr int kAligned = 0x0100;
constexpr int kWriteable = 0x0400;

struct ArrayFields {
  PyObject head;
  char* data;
  int dimension_count;
  Py_ssize_t* shape;
  Py_ssize_t* strides_bytes;
  PyObject* base;
  PyObject* descr;
  int flags;
};

struct DescrFields {
  PyObject head;
  PyTypeObject* type_object;
  char kind;
  char type;
  char byte_order;
  char former_flags;
  int type_number;
};

// NumPy's numbers in their order; 9 and 10 are long long, 13 and 16 have no like here.
constexpr std::array<std::optional<DType>, 24> kDTypes = {
    DType::boolean, DType::i8,    DType::u8,    DType::i16,   DType::u16,   DType::i32,
    DType::u32,     DType::i64,   DType::u64,   DType::i64,   DType::u64,   DType::f32,
    DType::f64,     std::nullopt, DType::c64,   DType::c128,  std::nullopt, std::nullopt,
    std::nullopt,   std::nullopt, std::nullopt, std::nullopt, std::nullopt, DType::f16};

struct Numpy {
  void** table;
  std::array<PyObject*, kDTypes.size()> descriptions{};

  Numpy() {
    nb::object module;
    try {
      module = nb::module_::import_("numpy._core._multiarray_umath");
    } catch (nb::python_error& error) {  // NumPy 1
      if (!error.matches(PyExc_ImportError)) throw;
      module = nb::module_::import_("numpy.core._multiarray_umath");
    }
    const nb::object capsule = module.attr("_ARRAY_API");
    table = static_cast<void**>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
    if (table == nullptr) throw nb::python_error();
    const auto describe = reinterpret_cast<PyObject* (*)(int)>(table[kDescrFromType]);
    for (std::size_t i = 0; i < kDTypes.size(); ++i)
      if (kDTypes[i]) descriptions[i] = describe(static_cast<int>(i));
  }

  [[nodiscard]] PyTypeObject* array_type() const {
    return static_cast<PyTypeObject*>(table[kTypeOfArrays]);
  }
};

// Made at the first use; held for the life of the interpreter. No guarded static: an import may let
// another thread run, which would then wait for the guard with the GIL held.
const Numpy& numpy() {
  static const Numpy* made = nullptr;
  if (made == nullptr) made = new Numpy();
  return *made;
}

PyObject* description_of(DType dtype) {
  for (std::size_t i = 0; i < kDTypes.size(); ++i)
    if (kDTypes[i] == dtype) return numpy().descriptions[i];
  return nullptr;  // unreachable: types with a format are all there
}

}  // namespace

std::optional<PlainArray> plain_array(nb::handle object) {
  // Only who imported NumPy has one of its arrays: no import for those who have not.
  static PyTypeObject* type = nullptr;
  if (type == nullptr) {
    if (PyDict_GetItemString(PyImport_GetModuleDict(), "numpy") == nullptr) return std::nullopt;
    type = numpy().array_type();
  }
  if (Py_TYPE(object.ptr()) != type) return std::nullopt;
  const auto& array = *reinterpret_cast<const ArrayFields*>(object.ptr());
  const auto& descr = *reinterpret_cast<const DescrFields*>(array.descr);
  constexpr int kWanted = kRowMajor | kAligned;
  if ((array.flags & kWanted) != kWanted || descr.byte_order == '>') return std::nullopt;
  if (descr.type_number < 0 || static_cast<std::size_t>(descr.type_number) >= kDTypes.size())
    return std::nullopt;
  const auto dtype = kDTypes[static_cast<std::size_t>(descr.type_number)];
  if (!dtype) return std::nullopt;
  static_assert(sizeof(Py_ssize_t) == sizeof(std::int64_t));
  const auto shape = Shape::make({reinterpret_cast<const std::int64_t*>(array.shape),
                                  static_cast<std::size_t>(array.dimension_count)});
  // Too many dimensions: the way round finds the words for that.
  if (!shape || !shape->size_bytes(*dtype)) return std::nullopt;
  return PlainArray{reinterpret_cast<std::byte*>(array.data), *dtype, *shape,
                    (array.flags & kWriteable) == 0};
}

Tensor tensor_of(const PlainArray& array, std::shared_ptr<const void> owner) {
  const std::uint64_t size_bytes = unwrap(array.shape.size_bytes(array.dtype));
  const Access access = array.read_only ? Access::read_only : Access::read_write;
  return unwrap(Tensor::view(Storage(std::move(owner), array.data, size_bytes, access), 0,
                             array.dtype, array.shape));
}

nb::object make_array(const Tensor& tensor, nb::object owner, nb::handle type) {
  const Numpy& api = numpy();
  const auto item_bytes = static_cast<Py_ssize_t>(item_size_bytes(tensor.dtype()));
  std::array<Py_ssize_t, kMaxDimensions> shape;
  std::array<Py_ssize_t, kMaxDimensions> strides;
  const std::size_t count = tensor.dimension_count();
  for (std::size_t i = 0; i < count; ++i) {
    shape[i] = tensor.shape()[i];
    strides[i] = tensor.strides()[i] * item_bytes;
  }
  PyTypeObject* const made =
      type.is_valid() ? reinterpret_cast<PyTypeObject*>(type.ptr()) : api.array_type();
  const auto create =
      reinterpret_cast<PyObject* (*)(PyTypeObject*, PyObject*, int, const Py_ssize_t*,
                                     const Py_ssize_t*, void*, int, PyObject*)>(
          api.table[kNewFromDescr]);
  // NumPy allocates where it is given no memory; it writes only where it may.
  static std::byte nothing[1];
  auto* const data = const_cast<std::byte*>(tensor.data());
  nb::object array =
      nb::steal(create(made, Py_NewRef(description_of(tensor.dtype())), static_cast<int>(count),
                       shape.data(), strides.data(), data == nullptr ? nothing : data,
                       tensor.access() == Access::read_only ? 0 : kWriteable, nullptr));
  if (!array.is_valid()) throw nb::python_error();
  const auto set_base = reinterpret_cast<int (*)(PyObject*, PyObject*)>(api.table[kSetBaseObject]);
  if (set_base(array.ptr(), owner.release().ptr()) != 0) throw nb::python_error();
  return array;
}

}  // namespace tendon::python
