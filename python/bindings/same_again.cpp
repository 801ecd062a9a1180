// SPDX-License-Identifier: Apache-2.0
#include "same_again.hpp"

#include <nanobind/stl/string.h>

#include <tendon/tensor/path.hpp>
#include <utility>

#include "errors.hpp"
#include "numpy_api.hpp"
#include "values.hpp"

namespace tendon::python {
namespace {

/// Deeper ones are rare, and may contain themselves.
constexpr std::size_t kDepth = 8;
constexpr std::size_t kRefusals = 64;

struct HeldArray : Deferred {
  nb::object array;
};

bool is_scalar(nb::handle object) {
  PyObject* const p = object.ptr();
  return object.is_none() || PyBool_Check(p) || PyLong_CheckExact(p) || PyFloat_CheckExact(p) ||
         PyUnicode_CheckExact(p);
}

}  // namespace

struct SameAgain::Entry {
  nb::object key;
  std::string path;
  EntryKind kind = EntryKind::value;
  std::shared_ptr<HeldArray> held;  // of a tensor: keeps its memory, also as the owner of a Storage
  PlainArray array{};
  Value value;
};

SameAgain::SameAgain() = default;
SameAgain::~SameAgain() = default;

bool SameAgain::take(nb::handle dict) {
  if (refusals_ != 0) {
    --refusals_;
    return false;
  }
  try {
    at_ = 0;
    if (!entries_.empty() && refill(dict) && at_ == entries_.size()) return true;
    forget();
    if (build(dict, "", 0)) return true;
  } catch (const nb::python_error&) {  // dict_from raises the same
  } catch (const nb::builtin_exception&) {
  }
  forget();
  refusals_ = kRefusals;
  return false;
}

void SameAgain::let_go() {
  for (Entry& entry : entries_)
    if (entry.held != nullptr) entry.held->array.reset();
}

void SameAgain::forget() {
  entries_.clear();
  batch_ = TensorDict();
}

bool SameAgain::build(nb::handle dict, const std::string& prefix, std::size_t depth) {
  if (depth > kDepth) return false;
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* object = nullptr;
  while (PyDict_Next(dict.ptr(), &position, &key, &object) != 0) {
    if (!PyUnicode_CheckExact(key)) return false;
    Py_ssize_t size = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(key, &size);
    if (text == nullptr) {
      PyErr_Clear();
      return false;
    }
    Entry entry;
    entry.key = nb::borrow(key);
    entry.path = prefix + escape_name({text, static_cast<std::size_t>(size)});
    if (const auto array = plain_array(object)) {
      entry.kind = EntryKind::tensor;
      entry.array = *array;
      entry.held = share(std::make_unique<HeldArray>());
      entry.held->array = nb::borrow(object);
      if (!batch_.try_set(entry.path, tensor_of(*array, entry.held))) return false;
      entries_.push_back(std::move(entry));
    } else if (PyDict_CheckExact(object)) {
      entry.kind = EntryKind::dict;
      const std::string below = entry.path + "/";
      if (!batch_.try_set(entry.path, TensorDict())) return false;
      entries_.push_back(std::move(entry));
      if (!build(object, below, depth + 1)) return false;
    } else if (is_scalar(object)) {
      entry.value = value_from(object, entry.path).value();
      if (!batch_.try_set(entry.path, entry.value)) return false;
      entries_.push_back(std::move(entry));
    } else {
      return false;
    }
  }
  return true;
}

bool SameAgain::refill(nb::handle dict) {
  Py_ssize_t position = 0;
  PyObject* key = nullptr;
  PyObject* object = nullptr;
  const std::string* const last_path = at_ == 0 ? nullptr : &entries_[at_ - 1].path;
  const auto belongs_here = [&](const Entry& entry) {
    const std::size_t slash = entry.path.rfind('/');
    return last_path == nullptr ? slash == std::string::npos
                                : slash == last_path->size() && entry.path.starts_with(*last_path);
  };
  while (PyDict_Next(dict.ptr(), &position, &key, &object) != 0) {
    if (at_ == entries_.size()) return false;
    Entry& entry = entries_[at_];
    if (!belongs_here(entry)) return false;
    if (!entry.key.is(key) &&
        !(PyUnicode_CheckExact(key) && PyUnicode_Compare(entry.key.ptr(), key) == 0))
      return false;
    ++at_;
    if (!refill_entry(entry, object)) return false;
  }
  // The dict before may have had more entries here.
  return at_ == entries_.size() || !belongs_here(entries_[at_]);
}

bool SameAgain::refill_entry(Entry& entry, nb::handle object) {
  if (entry.kind == EntryKind::tensor) {
    const auto array = plain_array(object);
    if (!array || array->dtype != entry.array.dtype || !(array->shape == entry.array.shape))
      return false;
    entry.held->array = nb::borrow(object);
    if (array->data == entry.array.data && array->read_only == entry.array.read_only) return true;
    entry.array = *array;
    return batch_.try_set(entry.path, tensor_of(*array, entry.held)).has_value();
  }
  if (entry.kind == EntryKind::dict) return PyDict_CheckExact(object.ptr()) && refill(object);
  if (!is_scalar(object)) return false;
  Value value = value_from(object, entry.path).value();
  if (value == entry.value) return true;
  entry.value = value;
  return batch_.try_set(entry.path, std::move(value)).has_value();
}

}  // namespace tendon::python
