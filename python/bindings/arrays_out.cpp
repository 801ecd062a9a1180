// SPDX-License-Identifier: Apache-2.0
#include "arrays_out.hpp"

#include <nanobind/stl/string.h>

#include <atomic>
#include <memory>
#include <sstream>
#include <tendon/tensor/dlpack.hpp>
#include <utility>
#include <vector>

#include "arrays_in.hpp"
#include "bindings.hpp"
#include "copies.hpp"
#include "cuda/behind_stream.hpp"
#include "dtypes.hpp"
#include "errors.hpp"
#include "gpu_order.hpp"
#include "numpy_api.hpp"
#include "schema.hpp"
#include "torch_api.hpp"
#include "without_gil.hpp"

namespace tendon::python {
namespace {

constexpr const char* kTensorDoc =
    "Elements of one type and shape in memory that they keep alive.\n\n"
    "NumPy's element types are handed out as numpy.ndarray; this class is for the\n"
    "others: bf16, the eight-bit floats and c32. torch.from_dlpack(tensor)\n"
    "and jax.numpy.from_dlpack(tensor) share its memory, numpy.asarray(tensor)\n"
    "too where the package ml_dtypes is installed.\n\n"
    "A tensor on a GPU is handed out as one too: by DLPack, whose consumer says on\n"
    "which stream it reads, and by __cuda_array_interface__. What would read its\n"
    "elements on the CPU raises UnsupportedDevice.\n\n"
    "Tensor(array) is the memory of any array, without a copy.";

/// The shape and strides that one view of the buffer protocol points to.
struct Exported {
  std::vector<Py_ssize_t> shape;
  std::vector<Py_ssize_t> strides;
};

// https://docs.python.org/3/c-api/typeobj.html#buffer-structs
int get_buffer(PyObject* self, Py_buffer* view, int flags) noexcept {
  const Tensor& tensor = *nb::inst_ptr<Tensor>(self);
  view->obj = nullptr;
  if (tensor.device() != cpu()) {
    try {
      refuse_gpu(tensor, "the buffer protocol");
    } catch (nb::python_error& error) {
      error.restore();
    }
    return -1;
  }
  const char* const format = format_of(tensor.dtype());
  if (format == nullptr) {
    PyErr_Format(PyExc_BufferError, "the buffer protocol has no element type %s; use DLPack",
                 std::string(full_name(tensor.dtype())).c_str());
    return -1;
  }
  const bool read_only = tensor.access() == Access::read_only;
  if (read_only && (flags & PyBUF_WRITABLE) == PyBUF_WRITABLE) {
    PyErr_SetString(PyExc_BufferError, "this memory may be read, not written");
    return -1;
  }
  if ((flags & PyBUF_STRIDES) != PyBUF_STRIDES && !tensor.is_contiguous()) {
    PyErr_SetString(PyExc_BufferError, "the elements have gaps between them");
    return -1;
  }
  const auto item_bytes = static_cast<Py_ssize_t>(item_size_bytes(tensor.dtype()));
  auto exported = std::make_unique<Exported>();
  for (const std::int64_t size : tensor.shape().span()) exported->shape.push_back(size);
  for (const std::int64_t stride : tensor.strides().span())
    exported->strides.push_back(stride * item_bytes);
  view->buf = const_cast<std::byte*>(tensor.data());  // `readonly` guards it
  view->len = static_cast<Py_ssize_t>(tensor.size_bytes());
  view->itemsize = item_bytes;
  view->readonly = read_only ? 1 : 0;
  view->ndim = static_cast<int>(tensor.dimension_count());
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(format) : nullptr;
  view->shape = (flags & PyBUF_ND) != 0 ? exported->shape.data() : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? exported->strides.data() : nullptr;
  view->suboffsets = nullptr;
  view->internal = exported.release();
  view->obj = Py_NewRef(self);
  return 0;
}

void release_buffer(PyObject* /*self*/, Py_buffer* view) noexcept {
  delete static_cast<Exported*>(view->internal);
}

PyType_Slot kSlots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
    {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
    {0, nullptr},
};

nb::tuple shape_of(const Tensor& tensor) {
  nb::list sizes;
  for (const std::int64_t size : tensor.shape().span()) sizes.append(size);
  return nb::tuple(sizes);
}

nb::tuple dlpack_device(const Tensor& tensor) {
  return nb::make_tuple(static_cast<int>(tensor.device().kind), tensor.device().index);
}

template <class Managed>
nb::object capsule_of(Managed* managed, const char* name) {
  return nb::steal(PyCapsule_New(managed, name, [](PyObject* capsule) {
    // A consumer that took the tensor has renamed the capsule.
    const char* const kept = PyCapsule_GetName(capsule);
    if (kept == nullptr || std::string_view(kept).starts_with("used_")) return;
    auto* const left = static_cast<Managed*>(PyCapsule_GetPointer(capsule, kept));
    left->deleter(left);
  }));
}

std::atomic<std::uint64_t> copied_read_only{0};

[[noreturn]] void refuse_export(const std::string& why) {
  PyErr_SetString(PyExc_BufferError, why.c_str());
  throw nb::python_error();
}

nb::object capsule_of(const Tensor& exported, bool versioned, bool copied) {
  if (versioned) {
    auto* const managed = to_dlpack(exported);
    if (copied) managed->flags |= dlpack::kFlagIsCopied;
    return capsule_of(managed, "dltensor_versioned");
  }
  auto managed = to_dlpack_unversioned(exported);
  if (!managed) refuse_export(managed.error().detail);
  return capsule_of(*managed, "dltensor");
}

/// Memory that a consumer uses on its stream. Its reuse or its send waits for that work.
class ReadOnStream {
 public:
  ReadOnStream(const Tensor& tensor, Stream written, Stream reader)
      : memory_(tensor.storage()),
        written_(written),
        reader_(reader),
        consumers_(consumers_of(tensor)) {
    if (consumers_ != nullptr) entry_ = consumers_->add(reader_);
  }
  ReadOnStream(const ReadOnStream&) = delete;
  ReadOnStream& operator=(const ReadOnStream&) = delete;
  // Runs on any thread. A lost GPU and a forked child need no order.
  ~ReadOnStream() {
    if (let_wait(memory_.device(), reader_, written_)) {
      if (consumers_ != nullptr) consumers_->remove(entry_);
    } else if (const auto gpu = used_gpu(memory_.device())) {
      // A stream is being captured. A send of the memory reports that meanwhile.
      detail::cuda::drop_behind(*gpu, reader_, {until_done()});
    }
  }

 private:
  /// Keeps the memory and the note of its consumer as long as the consumer's work on the GPU runs.
  [[nodiscard]] std::shared_ptr<const void> until_done() const {
    const auto leave = [memory = memory_, consumers = consumers_, entry = entry_](const void*) {
      if (consumers != nullptr) consumers->remove(entry);
    };
    return {memory_.data(), leave};
  }

  const Storage memory_;
  const Stream written_;
  const Stream reader_;
  const std::shared_ptr<Consumers> consumers_;  // null: consumers are not noted
  Consumers::Entry entry_;
};

nb::object export_from_gpu(const Tensor& tensor, nb::handle stream, bool versioned,
                           nb::handle copy) {
  const std::string device = to_string(tensor.device());
  if (copy.is(Py_True))
    refuse_export("the tensor lies on " + device +
                  ", where Tendon copies nothing; copy what is made");
  if (tensor.access() == Access::read_only && (!versioned || called_by_torch())) {
    refuse_export("this memory on " + device +
                  " may be read, not written; torch and the struct before DLPack 1.0 have no word "
                  "for that");
  }
  const auto written = order_of(tensor);
  std::int64_t number = detail::cuda::kLegacyStream;  // the meaning of None
  if (!stream.is_none() && (PyLong_Check(stream.ptr()) == 0 || !nb::try_cast(stream, number) ||
                            number < -1 || number == 0)) {
    raise_value_error("stream is " + shown(stream) +
                      "; legal are None, -1, 1, 2 and handles of CUDA as an int");
  }
  if (!written || number == -1) return capsule_of(tensor, versioned, false);
  const Stream reader = stream_of(static_cast<std::uintptr_t>(number));
  unwrap(without_gil([&] { return let_wait(tensor.device(), *written, reader); }));
  const Storage& memory = tensor.storage();
  const auto offset = static_cast<std::uint64_t>(tensor.data() - memory.data());
  const Storage read(std::make_shared<ReadOnStream>(tensor, *written, reader), memory.data(),
                     memory.size_bytes(), memory.access(), memory.origin(), memory.device());
  return capsule_of(
      unwrap(Tensor::view(read, offset, tensor.dtype(), tensor.shape(), tensor.strides())),
      versioned, false);
}

// https://dmlc.github.io/dlpack/latest/python_spec.html
nb::object export_dlpack(const Tensor& tensor, nb::handle stream, nb::handle max_version,
                         nb::handle dl_device, nb::handle copy) {
  const bool is_on_gpu = tensor.device() != cpu();
  if (!is_on_gpu && !stream.is_none())
    raise_value_error("stream is given; a tensor on the CPU has none");
  if (!dl_device.is_none() && !dl_device.equal(dlpack_device(tensor))) {
    refuse_export("the tensor is on " + (is_on_gpu ? to_string(tensor.device()) : "the CPU") +
                  ", and is not moved in secret");
  }
  Tensor exported = tensor;
  const bool versioned =
      !max_version.is_none() && nb::cast<unsigned>(max_version[0]) >= dlpack::kMajorVersion;
  if (is_on_gpu) return export_from_gpu(tensor, stream, versioned, copy);
  // torch takes DLPack 1.0 and lets its users write to memory that is flagged READ_ONLY.
  const bool would_write =
      tensor.access() == Access::read_only && (!versioned || called_by_torch());
  if (would_write && copy.is(Py_False)) {
    refuse_export(
        "this memory may be read, not written; torch and the struct before DLPack 1.0 have no word "
        "for that, so a copy is needed, and copy is False");
  }
  const bool copied = copy.is(Py_True) || would_write;
  if (would_write && !copy.is(Py_True)) copied_read_only.fetch_add(1, std::memory_order_relaxed);
  if (copied)
    exported = unwrap(
        Tensor::from_bytes(tensor.dtype(), tensor.shape(), unwrap(tensor.contiguous()).bytes()));
  return capsule_of(exported, versioned, copied);
}

// https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html
nb::dict cuda_array_interface(const Tensor& tensor) {
  constexpr const char* kNoSuchAttribute =
      "a tensor on the CPU, or of a type that NumPy lacks, has no __cuda_array_interface__; use "
      "DLPack";
  if (tensor.device() == cpu() || format_of(tensor.dtype()) == nullptr)
    throw nb::attribute_error(kNoSuchAttribute);
  nb::dict said;
  said["version"] = 3;
  said["shape"] = shape_of(tensor);
  said["typestr"] = typestr_of(tensor.dtype());
  said["data"] = nb::make_tuple(reinterpret_cast<std::uintptr_t>(tensor.data()),
                                tensor.access() == Access::read_only);
  nb::object strides = nb::none();
  if (!tensor.is_contiguous()) {
    nb::list steps;
    for (const std::int64_t stride : tensor.strides().span())
      steps.append(stride * static_cast<std::int64_t>(item_size_bytes(tensor.dtype())));
    strides = nb::tuple(steps);
  }
  said["strides"] = strides;
  const auto order = order_of(tensor);
  said["stream"] = order ? nb::cast(reinterpret_cast<std::uintptr_t>(handle_of(*order)))
                         : nb::object(nb::none());
  return said;
}

/// A NumPy array on the memory of `self`, the Python object of a Tensor whose type NumPy has.
nb::object numpy_array(nb::object self) {
  const auto& tensor = nb::cast<const Tensor&>(self);
  if (tensor.access() == Access::read_write) return make_array(tensor, std::move(self));
  return make_array(tensor, std::move(self),
                    nb::module_::import_("tendon._arrays").attr("ReadOnlyArray"));
}

nb::object as_ml_dtypes(const Tensor& tensor) {
  const std::string name(full_name(tensor.dtype()));
  nb::object dtype;
  try {
    dtype = nb::module_::import_("ml_dtypes").attr(name.c_str());
  } catch (nb::python_error& error) {
    nb::raise_from(error, PyExc_TypeError,
                   "NumPy has no element type %s; install ml_dtypes, or use DLPack "
                   "(torch.from_dlpack)",
                   name.c_str());
  }
  // Views the memory as an unsigned type of the same size, then under its own name.
  const DType bits = item_size_bytes(tensor.dtype()) == 1 ? DType::u8 : DType::u16;
  const auto offset = static_cast<std::uint64_t>(tensor.data() - tensor.storage().data());
  Tensor plain =
      unwrap(Tensor::view(tensor.storage(), offset, bits, tensor.shape(), tensor.strides()));
  return numpy_array(nb::cast(std::move(plain))).attr("view")(dtype);
}

nb::object as_numpy(nb::handle self, nb::handle dtype, nb::handle copy) {
  const auto& tensor = nb::cast<const Tensor&>(self);
  if (tensor.device() != cpu()) refuse_gpu(tensor, "NumPy");
  nb::object array;
  if (format_of(tensor.dtype()) == nullptr)
    array = as_ml_dtypes(tensor);
  else
    array = numpy_array(nb::borrow(self));
  if (!dtype.is_none() && !array.attr("dtype").equal(dtype)) {
    if (copy.is(Py_False)) raise_value_error("another dtype needs a copy, and copy is False");
    return array.attr("astype")(dtype);
  }
  return copy.is(Py_True) ? array.attr("copy")() : array;
}

}  // namespace

nb::object to_array(Tensor tensor) {
  const bool is_numpy = tensor.device() == cpu() && format_of(tensor.dtype()) != nullptr;
  nb::object made = nb::cast(std::move(tensor));
  return is_numpy ? numpy_array(std::move(made)) : made;
}

nb::object to_memoryview(const Storage& bytes) {
  const auto count = static_cast<std::int64_t>(bytes.size_bytes());
  const nb::object tensor = nb::cast(unwrap(Tensor::view(bytes, 0, DType::u8, Shape{count})));
  return nb::steal(PyMemoryView_FromObject(tensor.ptr()));
}

void bind_tensor(nb::module_& module) {
  auto type = nb::class_<Tensor>(module, "Tensor", kTensorDoc, nb::type_slots(kSlots));
  bind_copies(type);
  type.def(
          "__init__",
          [](Tensor* self, nb::object array) {
            auto tensor = tensor_from(array, "the argument");
            if (!tensor) {
              raise_type_error("a " + quoted_type(array) +
                               " is no array; legal is what has the buffer protocol, "
                               "__array_interface__, __dlpack__ or __cuda_array_interface__");
            }
            new (self) Tensor(*std::move(tensor));
          },
          nb::arg("array").none(), nb::sig("def __init__(self, array: object) -> None"))
      .def_prop_ro(
          "dtype", [](const Tensor& t) { return std::string(full_name(t.dtype())); },
          "The element type: 'float32', 'bfloat16'.")
      .def_prop_ro("shape", shape_of, "The size of each dimension [elements].",
                   nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "device", [](const Tensor& t) { return to_string(t.device()); },
          "Where the memory is: 'cpu', 'cuda:0'.")
      .def_prop_ro("nbytes", &Tensor::size_bytes, "Bytes of all elements, without gaps.")
      .def_prop_ro(
          "readonly", [](const Tensor& t) { return t.access() == Access::read_only; },
          "True for memory that may be read, not written.")
      .def_static(
          "_empty",
          [](nb::object shape, nb::object dtype) {
            return to_array(unwrap(Tensor::empty(dtype_of_object(dtype), shape_from(shape))));
          })
      .def("__dlpack__", export_dlpack, nb::kw_only(), nb::arg("stream").none() = nb::none(),
           nb::arg("max_version").none() = nb::none(), nb::arg("dl_device").none() = nb::none(),
           nb::arg("copy").none() = nb::none(),
           "The capsule of the DLPack protocol. Of a tensor on a GPU stream is what reads it:\n"
           "it waits on the GPU until the elements are there.",
           nb::sig(
               "def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | "
               "None = None, dl_device: tuple[int, int] | None = None, copy: bool | None = "
               "None) -> object"))
      .def("__dlpack_device__", dlpack_device,
           nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def_prop_ro("__cuda_array_interface__", cuda_array_interface,
                   "Version 3, of a tensor on a GPU: its stream is that behind whose work the\n"
                   "elements are there. Other streams wait for that, and the memory is kept until\n"
                   "they are done.",
                   nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"))
      .def("__array__", as_numpy, nb::arg("dtype").none() = nb::none(),
           nb::arg("copy").none() = nb::none(), "For numpy.asarray; without a copy.",
           nb::sig("def __array__(self, dtype: object = None, copy: bool | None = None) -> "
                   "numpy.ndarray"))
      .def("_view",
           [](const Tensor& self, std::uint64_t start, nb::object dtype, nb::object shape) {
             const auto offset = static_cast<std::uint64_t>(self.data() - self.storage().data());
             return unwrap(Tensor::view(self.storage(), offset + start, dtype_of_object(dtype),
                                        shape_from(shape)));
           })
      .def("__len__",
           [](const Tensor& t) {
             if (t.shape().empty()) raise_type_error("a tensor without dimensions has no length");
             return t.shape()[0];
           })
      .def("__repr__", [](const Tensor& t) {
        std::ostringstream text;
        text << "tendon.Tensor(" << full_names << t << ")";
        return text.str();
      });
  module.def(
      "copied_read_only", [] { return copied_read_only.load(std::memory_order_relaxed); },
      "Arrays copied since the import because they may only be read, and torch or a\n"
      "consumer of the DLPack before 1.0 would have written to them.");
}

}  // namespace tendon::python
