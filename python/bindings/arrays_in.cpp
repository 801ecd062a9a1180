// SPDX-License-Identifier: Apache-2.0
#include "arrays_in.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <tendon/tensor/dlpack.hpp>

#include "deferred.hpp"
#include "dtypes.hpp"
#include "errors.hpp"
#include "gpu_order.hpp"
#include "numpy_api.hpp"
#include "plain_memory.hpp"
#include "torch_api.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

/// Keeps a view of the buffer protocol and releases it with the GIL, as its exporter requires.
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

/// Keeps a foreign DLPack tensor. Its deleter may take the GIL, so it runs only where the GIL is
/// held.
struct HeldTensor : Deferred {
  explicit HeldTensor(Tensor held) : tensor(std::move(held)) {}
  Tensor tensor;
};

std::string shape_text(const Py_ssize_t* sizes, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i != 0 ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

/// The element type as the array describes it, else `otherwise`.
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

/// A strided view as every protocol describes it. from_dlpack checks it.
struct Description {
  void* data = nullptr;
  DType dtype = DType::u8;
  int dimension_count = 0;
  const Py_ssize_t* shape = nullptr;
  const Py_ssize_t* strides_bytes = nullptr;  // null: row-major
  bool read_only = false;
  Device device = cpu();
};

Tensor unwrap_for(nb::handle object, const std::string& name, Result<Tensor> tensor) {
  if (tensor) return *std::move(tensor);
  Error error = std::move(tensor).error();
  error.detail = name + " is a " + quoted_type(object) + ": " + error.detail;
  throw to_exception(error);
}

/// The memory that `view` points to; `owner` keeps it alive.
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
    // A dimension of at most one element may have any stride: nothing uses it.
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
                              {static_cast<std::int32_t>(from.device.kind), from.device.index},
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
    // The buffer protocol cannot describe these elements; another protocol may.
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

/// Raises a ValueError with the array's own reason: a gradient, a device, a layout.
[[noreturn]] void refuse_access(nb::python_error& error, const std::string& name,
                                nb::handle object) {
  const auto why = nb::cast<std::string>(nb::str(error.value()));
  nb::raise_from(error, PyExc_ValueError, "%s is a %s that gives no access to its elements: %s",
                 name.c_str(), quoted_type(object).c_str(), why.c_str());
}

constexpr const char* kArrayInterface = "__array_interface__";
constexpr const char* kCudaArrayInterface = "__cuda_array_interface__";

/// Reads `__array_interface__` and `__cuda_array_interface__`; no content of theirs can do harm.
/// https://numpy.org/doc/stable/reference/arrays.interface.html
/// https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
class ArrayInterface {
 public:
  ArrayInterface(nb::handle object, nb::dict interface, const std::string& name,
                 const char* attribute)
      : object_(object), interface_(std::move(interface)), name_(name), attribute_(attribute) {
    if (!entry("mask").is_none()) {
      refuse(
          "has a mask, which would be lost; legal are the elements and the mask under names of "
          "their own");
    }
    shape_ = sizes("shape");
    strides_ = entry("strides").is_none() ? std::vector<Py_ssize_t>() : sizes("strides");
    if (!strides_.empty() && strides_.size() != shape_.size())
      refuse("has " + std::to_string(strides_.size()) + " strides for a shape of " +
             std::to_string(shape_.size()));
    for (const Py_ssize_t size : shape_)
      if (size < 0) refuse("has the shape " + shape_text(shape_.data(), dimension_count()));
  }

  [[nodiscard]] Tensor tensor() {
    const DType dtype = element_type();
    const nb::object data = entry("data");
    Description description{.data = nullptr,
                            .dtype = dtype,
                            .dimension_count = dimension_count(),
                            .shape = shape_.data(),
                            .strides_bytes = strides_.empty() ? nullptr : strides_.data()};
    if (PyTuple_Check(data.ptr()) != 0) {
      read_address(data, "(address, read-only), what has the buffer protocol, and None",
                   description);
      return make_tensor(description, keep(nb::make_tuple(object_, interface_)), object_, name_);
    }
    // `data` is a buffer, which PIL's images make for this access alone; None means the object's
    // own buffer.
    auto held = std::make_unique<HeldBuffer>();
    const nb::handle exporter = data.is_none() ? object_ : nb::handle(data);
    if (PyObject_GetBuffer(exporter.ptr(), &held->view, PyBUF_SIMPLE) != 0) {
      PyErr_Clear();
      refuse("names no memory: data is a " + quoted_type(data) +
             "; legal are (address, read-only), what has the buffer protocol, and None");
    }
    const Py_ssize_t offset = entry("offset").is_none() ? 0 : size_of(entry("offset"), "offset");
    check_inside(held->view.len, offset, static_cast<Py_ssize_t>(item_size_bytes(dtype)));
    description.data = static_cast<std::byte*>(held->view.buf) + offset;
    description.read_only = held->view.readonly != 0;
    return make_tensor(description, share(std::move(held)), object_, name_);
  }

  /// The tensor on a GPU, in the order of the stream that the interface names.
  [[nodiscard]] Tensor gpu_tensor() {
    Description description{.data = nullptr,
                            .dtype = element_type(),
                            .dimension_count = dimension_count(),
                            .shape = shape_.data(),
                            .strides_bytes = strides_.empty() ? nullptr : strides_.data()};
    read_address(entry("data"), "(address, read-only)", description);
    // An empty array may have no address to find the GPU by.
    description.device = {DeviceKind::cuda, 0};
    if (!is_empty()) {
      auto device = without_gil([&] { return gpu_of_address(description.data); });
      if (!device) {
        Error error = std::move(device).error();
        error.detail = name_ + " is a " + quoted_type(object_) + ": " + error.detail;
        throw to_exception(error);
      }
      description.device = *device;
    }
    Tensor tensor =
        make_tensor(description, keep(nb::make_tuple(object_, interface_)), object_, name_);
    const nb::object stream = entry("stream");
    if (stream.is_none()) return tensor;
    std::uintptr_t number = 0;
    if (!nb::try_cast(stream, number) || number == 0) {
      refuse("has the stream " + nb::cast<std::string>(nb::repr(stream)) +
             "; legal are None, 1, 2 and handles of CUDA");
    }
    return in_order_of(stream_of(number), tensor);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    raise_type_error(name_ + " is a " + quoted_type(object_) + " whose " + attribute_ + " " + why);
  }
  void read_address(const nb::object& data, const char* legal, Description& description) const {
    const bool is_pair = PyTuple_Check(data.ptr()) != 0 && nb::len(data) == 2 &&
                         PyLong_Check(nb::object(data[0]).ptr()) != 0;
    description.data = is_pair ? PyLong_AsVoidPtr(nb::object(data[0]).ptr()) : nullptr;
    const int read_only = is_pair ? PyObject_IsTrue(nb::object(data[1]).ptr()) : -1;
    if (PyErr_Occurred() != nullptr || read_only < 0) {
      PyErr_Clear();
      refuse("names no memory: data is " + nb::cast<std::string>(nb::repr(data)) + "; legal are " +
             legal);
    }
    if (description.data == nullptr && !is_empty()) refuse("names the address 0");
    description.read_only = read_only != 0;
  }
  [[nodiscard]] nb::object entry(const char* key) const {
    return interface_.contains(key) ? nb::object(interface_[key]) : nb::none();
  }
  [[nodiscard]] Py_ssize_t size_of(nb::handle number, const char* key) const {
    const Py_ssize_t size = PyNumber_AsSsize_t(number.ptr(), PyExc_OverflowError);
    if (size != -1 || PyErr_Occurred() == nullptr) return size;
    PyErr_Clear();
    refuse("has the " + std::string(key) + " " + nb::cast<std::string>(nb::repr(entry(key))) +
           ", where integers are legal");
  }
  [[nodiscard]] std::vector<Py_ssize_t> sizes(const char* key) const {
    const nb::object given = entry(key);
    if (PyTuple_Check(given.ptr()) == 0 && PyList_Check(given.ptr()) == 0)
      refuse("has the " + std::string(key) + " " + nb::cast<std::string>(nb::repr(given)) +
             ", where a tuple is legal");
    std::vector<Py_ssize_t> read;
    for (nb::handle size : given) read.push_back(size_of(size, key));
    return read;
  }
  [[nodiscard]] int dimension_count() const noexcept { return static_cast<int>(shape_.size()); }
  [[nodiscard]] bool is_empty() const {
    return std::find(shape_.begin(), shape_.end(), 0) != shape_.end();
  }

  [[nodiscard]] DType element_type() const {
    std::string typestr;
    if (!nb::try_cast(entry("typestr"), typestr)) refuse("has no typestr");
    // The interface calls ml_dtypes "<V2"; the array's own dtype has the proper name.
    if (const auto dtype = dtype_from_array_name(dtype_text(object_, ""))) return *dtype;
    if (const auto dtype = dtype_from_typestr(typestr)) return *dtype;
    refuse_elements(name_, object_, dtype_text(object_, "'" + typestr + "'"),
                    shape_text(shape_.data(), dimension_count()));
  }

  /// Checks that all elements lie within a buffer of this size.
  void check_inside(Py_ssize_t buffer_bytes, Py_ssize_t offset, Py_ssize_t item_bytes) const {
    Py_ssize_t lowest = offset;
    Py_ssize_t behind = offset;
    Py_ssize_t dense = item_bytes;  // the bytes of the dimensions so far, without gaps
    bool overflows = __builtin_add_overflow(behind, is_empty() ? 0 : item_bytes, &behind);
    for (std::size_t i = shape_.size(); i-- > 0 && !is_empty();) {
      const Py_ssize_t stride = strides_.empty() ? dense : strides_[i];
      Py_ssize_t reach = 0;
      overflows |= __builtin_mul_overflow(stride, shape_[i] - 1, &reach);
      overflows |= __builtin_mul_overflow(dense, shape_[i], &dense);
      Py_ssize_t& end = reach < 0 ? lowest : behind;
      overflows |= __builtin_add_overflow(end, reach, &end);
    }
    if (!overflows && lowest >= 0 && behind <= buffer_bytes) return;
    refuse("describes elements of shape " + shape_text(shape_.data(), dimension_count()) +
           " that do not lie in its buffer of " + std::to_string(buffer_bytes) + " bytes");
  }

  nb::handle object_;
  nb::dict interface_;
  const std::string& name_;
  const char* attribute_;
  std::vector<Py_ssize_t> shape_;
  std::vector<Py_ssize_t> strides_;
};

std::optional<ArrayInterface> interface_of(nb::handle object, const std::string& name,
                                           const char* attribute) {
  const nb::object found = nb::steal(PyObject_GetAttrString(object.ptr(), attribute));
  if (!found.is_valid()) {
    nb::python_error error;
    if (error.matches(PyExc_AttributeError)) return std::nullopt;
    refuse_access(error, name, object);
  }
  if (!nb::isinstance<nb::dict>(found)) return std::nullopt;
  return ArrayInterface(object, nb::borrow<nb::dict>(found), name, attribute);
}

std::optional<Tensor> from_array_interface(nb::handle object, const std::string& name) {
  auto interface = interface_of(object, name, kArrayInterface);
  return interface ? std::optional(interface->tensor()) : std::nullopt;
}

std::optional<Tensor> from_cuda_array_interface(nb::handle object, const std::string& name) {
  // Looks at the type: an object may answer to any attribute, and slowly.
  if (!nb::hasattr(object.type(), kCudaArrayInterface)) return std::nullopt;
  auto interface = interface_of(object, name, kCudaArrayInterface);
  return interface ? std::optional(interface->gpu_tensor()) : std::nullopt;
}

// https://dmlc.github.io/dlpack/latest/python_spec.html
std::optional<Tensor> from_dlpack_protocol(nb::handle object, const std::string& name) {
  const nb::object method = nb::getattr(object, "__dlpack__", nb::none());
  if (method.is_none()) return std::nullopt;
  bool is_on_gpu = false;
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
    is_on_gpu = number == static_cast<int>(DeviceKind::cuda);
    if (number != static_cast<int>(DeviceKind::cpu) && !is_on_gpu) {
      const auto kind = device_kind_from_dlpack(number);
      throw to_exception({ErrorCode::unsupported_device, "python.array",
                          name + " is a " + quoted_type(object) + " on " +
                              (kind ? to_string(Device{*kind, index})
                                    : "DLPack device " + std::to_string(number)) +
                              "; legal are cpu and cuda: move it there first, nothing is copied in "
                              "secret"});
    }
  }
  nb::object capsule;
  try {
    const auto version = nb::make_tuple(dlpack::kMajorVersion, dlpack::kMinorVersion);
    // Every library accepts the legacy stream; torch refuses the per-thread one.
    constexpr std::uintptr_t kStream = detail::cuda::kLegacyStream;
    try {
      capsule = is_on_gpu ? method(nb::arg("stream") = kStream, nb::arg("max_version") = version)
                          : method(nb::arg("max_version") = version);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      // The producer is older than DLPack 1.0.
      capsule = is_on_gpu ? method(nb::arg("stream") = kStream) : method();
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
  std::shared_ptr<const void> owner = share(std::make_unique<HeldTensor>(std::move(foreign)));
  if (storage.device() != cpu()) owner = in_order_of(legacy_stream(), std::move(owner));
  return unwrap(Tensor::view(Storage(std::move(owner), storage.data(), storage.size_bytes(),
                                     storage.access(), storage.origin(), storage.device()),
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
    Tensor tensor =
        tensor_of_view(*view, Access::read_write, keep(storage_of(object)), object, name);
    if (tensor.device() == cpu()) return tensor;
    return in_order_of(stream_of(torch_stream(tensor.device().index)), tensor);
  }
  // A subclass, or a torch without the table of C functions. The buffer of numpy() is faster than
  // the DLPack protocol.
  nb::object tensor = nb::borrow(object);
  if (nb::cast<bool>(object.attr("requires_grad"))) tensor = object.attr("detach")();
  try {
    return from_buffer(tensor.attr("numpy")(), name);
  } catch (nb::python_error&) {
    // NumPy lacks the type, or refuses for a reason that the DLPack protocol explains better.
    return from_dlpack_protocol(tensor, name);
  }
}

// NumPy's masked arrays export their memory by every protocol, but not their mask.
void refuse_masked(nb::handle object, const std::string& name) {
  if (!nb::hasattr(object, "__array__") || !nb::hasattr(object, "_mask")) return;
  raise_type_error(name + " is a " + quoted_type(object) +
                   ", whose mask would be lost; legal are its parts: .filled(value), or .data and "
                   ".mask under names of their own");
}

std::optional<Tensor> from_protocols(nb::handle object, const std::string& name) {
  if (auto tensor = from_torch(object, name)) return tensor;
  refuse_masked(object, name);
  if (auto tensor = from_buffer(object, name)) return tensor;
  if (auto tensor = from_array_interface(object, name)) return tensor;
  if (auto tensor = from_dlpack_protocol(object, name)) return tensor;
  return from_cuda_array_interface(object, name);
}

/// The call by which an array's framework copies it without gaps: torch's method, or NumPy's
/// function in the array's package. None if neither exists.
nb::object without_gaps(nb::handle object) {
  const nb::object method = nb::getattr(object, "contiguous", nb::none());
  if (PyCallable_Check(method.ptr()) != 0) return method();
  const auto module = nb::cast<std::string>(nb::str(nb::getattr(object.type(), "__module__")));
  const nb::handle package =
      PyDict_GetItemString(PyImport_GetModuleDict(), module.substr(0, module.find('.')).c_str());
  if (!package.is_valid()) return nb::none();
  const nb::object function = nb::getattr(package, "ascontiguousarray", nb::none());
  return PyCallable_Check(function.ptr()) != 0 ? function(object) : nb::none();
}

}  // namespace

std::optional<Tensor> tensor_from(nb::handle object, const std::string& name) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<const Tensor&>(object);
  if (auto tensor = from_plain_memory(object)) return tensor;
  auto tensor = from_protocols(object, name);
  if (!tensor || tensor->device() == cpu() || tensor->is_contiguous() || !GapsAreCopied::here())
    return tensor;
  const nb::object whole = without_gaps(object);
  return whole.is_none() ? tensor : from_protocols(whole, name);
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
