// SPDX-License-Identifier: Apache-2.0
#include "arrays_in.hpp"

#include <nanobind/stl/string.h>

#include <array>
#include <cstdint>
#include <memory>
#include <tendon/tensor/dlpack.hpp>

#include "deferred.hpp"
#include "dtypes.hpp"
#include "errors.hpp"
#include "numpy_api.hpp"
#include "plain_memory.hpp"
#include "torch_api.hpp"

namespace tendon::python {
namespace {

/// Keeps a view that the buffer protocol gave. An exporter that lets go must hold the GIL.
struct HeldBuffer : Deferred {
  HeldBuffer() = default;
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;
  ~HeldBuffer() override { PyBuffer_Release(&view); }
  Py_buffer view{};
};

struct HeldObject : Deferred {
  explicit HeldObject(nb::object held) : object(std::move(held)) {}
  nb::object object;
};

/// The deleter of a foreign DLPack tensor may take the GIL, so it runs only where it is held.
struct HeldTensor : Deferred {
  explicit HeldTensor(Tensor held) : tensor(std::move(held)) {}
  Tensor tensor;
};

std::string shape_text(const Py_ssize_t* sizes, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i != 0 ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

/// What an array says of its element type; `otherwise` where it says nothing.
std::string dtype_text(nb::handle object, const std::string& otherwise) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  return dtype.is_none() ? otherwise : std::string(nb::str(dtype).c_str());
}

[[noreturn]] void refuse_elements(const std::string& name, nb::handle object,
                                  const std::string& dtype, const std::string& shape) {
  raise_type_error(name + " is a " + quoted_type(object) + " of dtype " + dtype + " and shape " +
                   shape + "; legal element types are " + legal_dtypes() +
                   ", in this machine's byte order");
}

/// A strided view as every protocol describes it, in one struct that from_dlpack checks.
struct Description {
  void* data = nullptr;
  DType dtype = DType::u8;
  int dimension_count = 0;
  const Py_ssize_t* shape = nullptr;
  const Py_ssize_t* strides_bytes = nullptr;  // null: row-major
  bool read_only = false;
};

Tensor unwrap_for(nb::handle object, const std::string& name, Result<Tensor> tensor) {
  if (tensor) return *std::move(tensor);
  Error error = std::move(tensor).error();
  error.detail = name + " is a " + quoted_type(object) + ": " + error.detail;
  throw to_exception(error);
}

/// What `view` points to, of memory that `owner` keeps alive.
Tensor tensor_of_view(const dlpack::DLTensor& view, Access access,
                      std::shared_ptr<const void> owner, nb::handle object,
                      const std::string& name) {
  struct Managed {
    dlpack::DLManagedTensorVersioned versioned;
    std::shared_ptr<const void> owner;
  };
  auto managed = std::make_unique<Managed>();
  managed->owner = std::move(owner);
  managed->versioned = {.version = {dlpack::kMajorVersion, dlpack::kMinorVersion},
                        .manager_ctx = managed.get(),
                        .deleter =
                            [](dlpack::DLManagedTensorVersioned* self) {
                              delete static_cast<Managed*>(self->manager_ctx);
                            },
                        .flags = access == Access::read_only ? dlpack::kFlagReadOnly : 0,
                        .dl_tensor = view};
  return unwrap_for(object, name, from_dlpack(&managed.release()->versioned));
}

Tensor make_tensor(const Description& from, std::shared_ptr<const void> owner, nb::handle object,
                   const std::string& name) {
  if (from.dimension_count > static_cast<int>(kMaxDimensions)) {
    throw to_exception({ErrorCode::limit_exceeded, "python.array",
                        name + " has " + std::to_string(from.dimension_count) +
                            " dimensions; at most " + std::to_string(kMaxDimensions) +
                            " are legal"});
  }
  const auto count = static_cast<std::size_t>(from.dimension_count);
  const auto item_bytes = static_cast<std::int64_t>(item_size_bytes(from.dtype));
  std::array<std::int64_t, kMaxDimensions> strides;
  std::array<std::int64_t, kMaxDimensions> shape;
  for (std::size_t i = 0; i < count; ++i) {
    shape[i] = from.shape[i];
    if (from.strides_bytes == nullptr) continue;
    // One that is never stepped along may be anything.
    const std::int64_t stride = shape[i] > 1 ? from.strides_bytes[i] : item_bytes;
    if (stride % item_bytes != 0) {
      raise_value_error(name + " is a " + quoted_type(object) + " of shape " +
                        shape_text(from.shape, from.dimension_count) + " whose stride of " +
                        std::to_string(stride) + " bytes in dimension " + std::to_string(i) +
                        " is no multiple of its " + std::to_string(item_bytes) +
                        "-byte elements; numpy.ascontiguousarray makes a copy that is legal");
    }
    strides[i] = stride / item_bytes;
  }
  const DLPackType type = to_dlpack_type(from.dtype);
  const dlpack::DLTensor view{from.data,
                              {static_cast<std::int32_t>(DeviceKind::cpu), 0},
                              from.dimension_count,
                              {type.code, type.bits, 1},
                              shape.data(),
                              from.strides_bytes == nullptr ? nullptr : strides.data(),
                              0};
  return tensor_of_view(view, from.read_only ? Access::read_only : Access::read_write,
                        std::move(owner), object, name);
}

std::shared_ptr<const void> keep(nb::object held) {
  return share(std::make_unique<HeldObject>(std::move(held)));
}

std::optional<Tensor> from_plain_memory(nb::handle object) {
  if (const auto array = plain_array(object)) return tensor_of(*array, keep(nb::borrow(object)));
  if (const auto tensor = plain_tensor(object)) return tensor_of(*tensor, keep(storage_of(object)));
  return std::nullopt;
}

std::optional<Tensor> from_buffer(nb::handle object, const std::string& name) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return std::nullopt;
  auto held = std::make_unique<HeldBuffer>();
  if (PyObject_GetBuffer(object.ptr(), &held->view, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    // Elements that the protocol has no word for: another protocol may have.
    PyErr_Clear();
    return std::nullopt;
  }
  const Py_buffer& view = held->view;
  const auto dtype = dtype_from_format(view.format, view.itemsize);
  if (!dtype) {
    refuse_elements(name, object, dtype_text(object, "'" + std::string(view.format) + "'"),
                    shape_text(view.shape, view.ndim));
  }
  const Description description{view.buf,   *dtype,       view.ndim,
                                view.shape, view.strides, view.readonly != 0};
  return make_tensor(description, share(std::move(held)), object, name);
}

std::vector<Py_ssize_t> sizes_of(nb::handle tuple) {
  std::vector<Py_ssize_t> sizes;
  for (nb::handle size : tuple) sizes.push_back(nb::cast<Py_ssize_t>(size));
  return sizes;
}

// https://numpy.org/doc/stable/reference/arrays.interface.html
std::optional<Tensor> from_array_interface(nb::handle object, const std::string& name) {
  const nb::object found = nb::getattr(object, "__array_interface__", nb::none());
  if (!nb::isinstance<nb::dict>(found)) return std::nullopt;
  const nb::dict interface = nb::borrow<nb::dict>(found);
  const std::vector<Py_ssize_t> shape = sizes_of(interface["shape"]);
  // The interface calls ml_dtypes "<V2"; the array's own dtype has the name.
  const auto typestr = nb::cast<std::string>(interface["typestr"]);
  std::optional<DType> dtype = dtype_from_array_name(dtype_text(object, ""));
  if (!dtype && typestr.size() > 2 && (typestr[0] == '<' || typestr[0] == '|')) {
    static constexpr std::pair<const char*, DType> kTypestrs[] = {
        {"b1", DType::boolean}, {"u1", DType::u8},   {"i1", DType::i8},  {"u2", DType::u16},
        {"i2", DType::i16},     {"u4", DType::u32},  {"i4", DType::i32}, {"u8", DType::u64},
        {"i8", DType::i64},     {"f2", DType::f16},  {"f4", DType::f32}, {"f8", DType::f64},
        {"c8", DType::c64},     {"c16", DType::c128}};
    for (const auto& [text, known] : kTypestrs)
      if (typestr.substr(1) == text) dtype = known;
  }
  if (!dtype) {
    refuse_elements(name, object, dtype_text(object, "'" + typestr + "'"),
                    shape_text(shape.data(), static_cast<int>(shape.size())));
  }
  const nb::object data = interface["data"];
  const std::vector<Py_ssize_t> strides =
      !interface.contains("strides") || interface["strides"].is_none()
          ? std::vector<Py_ssize_t>()
          : sizes_of(interface["strides"]);
  const Description description{reinterpret_cast<void*>(nb::cast<std::uintptr_t>(
                                    data[0])),  // NOLINT(performance-no-int-to-ptr)
                                *dtype,
                                static_cast<int>(shape.size()),
                                shape.data(),
                                strides.empty() ? nullptr : strides.data(),
                                nb::cast<bool>(data[1])};
  return make_tensor(description, keep(nb::make_tuple(object, interface)), object, name);
}

/// The array's own words say what is in the way: a gradient, a device, a layout.
[[noreturn]] void refuse_access(nb::python_error& error, const std::string& name,
                                nb::handle object) {
  const auto why = nb::cast<std::string>(nb::str(error.value()));
  nb::raise_from(error, PyExc_ValueError, "%s is a %s that gives no access to its elements: %s",
                 name.c_str(), quoted_type(object).c_str(), why.c_str());
}

// https://dmlc.github.io/dlpack/latest/python_spec.html
std::optional<Tensor> from_dlpack_protocol(nb::handle object, const std::string& name) {
  const nb::object method = nb::getattr(object, "__dlpack__", nb::none());
  if (method.is_none()) return std::nullopt;
  if (nb::hasattr(object, "__dlpack_device__")) {
    nb::object device;
    try {
      device = object.attr("__dlpack_device__")();
    } catch (nb::python_error& error) {
      refuse_access(error, name, object);
    }
    int number = 0;
    int index = 0;
    if (!PyTuple_Check(device.ptr()) || nb::len(device) != 2 || !nb::try_cast(device[0], number) ||
        !nb::try_cast(device[1], index)) {
      raise_type_error(name + " is a " + quoted_type(object) +
                       " whose __dlpack_device__() is no pair of integers");
    }
    if (number != static_cast<int>(DeviceKind::cpu)) {
      const auto kind = device_kind_from_dlpack(number);
      throw to_exception({ErrorCode::unsupported_device, "python.array",
                          name + " is a " + quoted_type(object) + " on " +
                              (kind ? to_string(Device{*kind, index})
                                    : "DLPack device " + std::to_string(number)) +
                              "; legal is cpu: move it there first, nothing is copied in secret"});
    }
  }
  nb::object capsule;
  try {
    try {
      capsule = method(nb::arg("max_version").none() =
                           nb::make_tuple(dlpack::kMajorVersion, dlpack::kMinorVersion));
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      capsule = method();  // a producer from before 1.0
    }
  } catch (nb::python_error& error) {
    refuse_access(error, name, object);
  }
  const auto take = [&]<class Managed>(Managed* /*type*/, const char* fresh, const char* used) {
    auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule.ptr(), fresh));
    PyCapsule_SetName(capsule.ptr(), used);
    return unwrap_for(object, name, from_dlpack(managed));
  };
  Tensor foreign;
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    foreign = take(static_cast<dlpack::DLManagedTensorVersioned*>(nullptr), "dltensor_versioned",
                   "used_dltensor_versioned");
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0) {
    foreign = take(static_cast<dlpack::DLManagedTensor*>(nullptr), "dltensor", "used_dltensor");
  } else {
    raise_type_error(name + " is a " + quoted_type(object) + " whose __dlpack__ gives a " +
                     quoted_type(capsule) +
                     "; legal is a capsule named dltensor_versioned or dltensor");
  }
  const auto offset = static_cast<std::uint64_t>(foreign.data() - foreign.storage().data());
  const Storage storage = foreign.storage();
  const DType dtype = foreign.dtype();
  const Shape shape = foreign.shape();
  const Strides strides = foreign.strides();
  return unwrap(
      Tensor::view(Storage(share(std::make_unique<HeldTensor>(std::move(foreign))), storage.data(),
                           storage.size_bytes(), storage.access(), storage.origin()),
                   offset, dtype, shape, strides));
}

std::optional<Tensor> from_torch(nb::handle object, const std::string& name) {
  if (!is_torch_tensor(object)) return std::nullopt;
  try {
    if (const char* const why = why_no_access(object)) {
      raise_value_error(name + " is a " + quoted_type(object) +
                        " that gives no access to its elements: " + why);
    }
  } catch (nb::python_error& error) {
    refuse_access(error, name, object);
  }
  if (const auto view = exchanged_view(object)) {
    return tensor_of_view(*view, Access::read_write, keep(storage_of(object)), object, name);
  }
  // A subclass, or a torch without the table of C functions; sooner so than by the protocol.
  try {
    return from_buffer(object.attr("numpy")(), name);
  } catch (nb::python_error&) {
    // A type that NumPy lacks, or something that the protocol has better words for.
    return from_dlpack_protocol(object, name);
  }
}

// NumPy's masked arrays give their memory away by every protocol, and keep the mask to themselves.
void refuse_masked(nb::handle object, const std::string& name) {
  if (!nb::hasattr(object, "__array__") || !nb::hasattr(object, "_mask")) return;
  raise_type_error(name + " is a " + quoted_type(object) +
                   ", whose mask would be lost; legal are its parts: .filled(value), or .data and "
                   ".mask under names of their own");
}

}  // namespace

std::optional<Tensor> tensor_from(nb::handle object, const std::string& name) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<const Tensor&>(object);
  if (auto tensor = from_plain_memory(object)) return tensor;
  if (auto tensor = from_torch(object, name)) return tensor;
  refuse_masked(object, name);
  if (auto tensor = from_buffer(object, name)) return tensor;
  if (auto tensor = from_array_interface(object, name)) return tensor;
  return from_dlpack_protocol(object, name);
}

std::optional<Storage> bytes_from(nb::handle object) {
  if (!PyBytes_Check(object.ptr()) && !PyByteArray_Check(object.ptr()) &&
      !PyMemoryView_Check(object.ptr()))
    return std::nullopt;
  auto held = std::make_unique<HeldBuffer>();
  if (PyObject_GetBuffer(object.ptr(), &held->view, PyBUF_SIMPLE) != 0) throw nb::python_error();
  auto* const data = static_cast<std::byte*>(held->view.buf);
  const auto size = static_cast<std::uint64_t>(held->view.len);
  return Storage(share(std::move(held)), data, size, Access::read_only);
}

}  // namespace tendon::python
