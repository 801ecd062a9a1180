// SPDX-License-Identifier: Apache-2.0
#include "same_again.hpp"

#include <nanobind/stl/string.h>

#include <utility>

#include "dicts.hpp"
#include "values.hpp"

namespace tendon::python {
namespace {

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

void SameAgain::take(nb::handle dict) {
  at_ = 0;
  if (!entries_.empty() && refill(dict) && at_ == entries_.size()) return;
  forget();
  batch_ = dict_from(dict, this);
}

void SameAgain::let_go() {
  if (!all_known_) return forget();
  for (Entry& entry : entries_)
    if (entry.held != nullptr) entry.held->array.reset();
}

void SameAgain::forget() {
  entries_.clear();
  batch_ = TensorDict();
  all_known_ = true;
}

SameAgain::Entry& SameAgain::note(nb::handle key, const std::string& path, EntryKind kind) {
  if (!PyUnicode_CheckExact(key.ptr())) note_other();
  Entry& entry = entries_.emplace_back();
  entry.key = nb::borrow(key);
  entry.path = path;
  entry.kind = kind;
  return entry;
}

Tensor SameAgain::note_array(nb::handle key, const std::string& path, nb::handle object,
                             const PlainArray& array) {
  Entry& entry = note(key, path, EntryKind::tensor);
  entry.array = array;
  entry.held = share(std::make_unique<HeldArray>());
  entry.held->array = nb::borrow(object);
  return tensor_of(array, entry.held);
}

void SameAgain::note_dict(nb::handle key, const std::string& path, nb::handle object) {
  if (!PyDict_CheckExact(object.ptr())) return note_other();
  note(key, path, EntryKind::dict);
}

void SameAgain::note_value(nb::handle key, const std::string& path, nb::handle object,
                           const Value& value) {
  if (!is_scalar(object)) return note_other();
  note(key, path, EntryKind::value).value = value;
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
  return true;  // had the dict before more entries here, the next one belongs elsewhere
}

bool SameAgain::refill_entry(Entry& entry, nb::handle object) {
  if (entry.kind == EntryKind::tensor) {
    const auto array = plain_array(object);
    if (!array || array->dtype != entry.array.dtype || !(array->shape == entry.array.shape))
      return false;
    entry.held->array = nb::borrow(object);
    if (array->data == entry.array.data) return true;
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
