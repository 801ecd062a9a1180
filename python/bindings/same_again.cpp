// SPDX-License-Identifier: Apache-2.0
#include "same_again.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <tendon/tensor/path.hpp>
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

/// True if the object is a level like the noted one; without a note, if it is a dict.
bool is_such_level(nb::handle object, const std::optional<TensordictLevel>& noted) {
  if (!noted) return PyDict_CheckExact(object.ptr());
  return is_plain_tensordict(object) && TensordictLevel(object).equals(*noted);
}

}  // namespace

struct SameAgain::Entry {
  nb::object key;
  std::string path;
  EntryKind kind = EntryKind::value;
  std::shared_ptr<HeldArray> held;  // of a tensor: keeps its memory, also as a Storage's owner
  PlainMemory memory{};
  std::optional<TensordictLevel> level;  // of a nested TensorDict
  Value value;
};

SameAgain::SameAgain() = default;
SameAgain::~SameAgain() = default;

bool SameAgain::may_know(nb::handle object) {
  return PyDict_CheckExact(object.ptr()) || is_plain_tensordict(object);
}

void SameAgain::take(nb::handle object) {
  at_ = 0;
  if (!entries_.empty() && is_such_level(object, level_) && refill(object) &&
      at_ == entries_.size())
    return;
  forget();
  batch_ = dict_from(object, this);
  if (PyDict_CheckExact(object.ptr())) return;
  level_.emplace(object);
  all_known_ = note_tensordict(object, "");
}

void SameAgain::let_go() {
  if (!all_known_) return forget();
  for (Entry& entry : entries_)
    if (entry.held != nullptr) entry.held->array.reset();
}

void SameAgain::forget() {
  entries_.clear();
  level_.reset();
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
                             const PlainMemory& memory) {
  Entry& entry = note(key, path, EntryKind::tensor);
  entry.memory = memory;
  entry.held = share(std::make_unique<HeldArray>());
  entry.held->array = nb::borrow(object);
  return tensor_of(memory, entry.held);
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

bool SameAgain::note_tensordict(nb::handle object, const std::string& prefix) {
  for (const nb::handle item : tensordict_items(object)) {
    const nb::object key = item[0];
    const nb::object content = item[1];
    const std::string path = prefix + escape_name(nb::cast<std::string_view>(key));
    if (is_plain_tensordict(content)) {
      note(key, path, EntryKind::dict).level.emplace(content);
      if (!note_tensordict(content, path + "/")) return false;
    } else {
      const auto memory = plain_memory(content);
      // Replaces the Tensor that the adapter stored.
      if (!memory || !batch_.try_set(path, note_array(key, path, content, *memory))) return false;
    }
  }
  return true;
}

bool SameAgain::refill(nb::handle level) {
  const std::string* const place = at_ == 0 ? nullptr : &entries_[at_ - 1].path;
  if (PyDict_CheckExact(level.ptr())) {
    Py_ssize_t position = 0;
    PyObject* key = nullptr;
    PyObject* object = nullptr;
    while (PyDict_Next(level.ptr(), &position, &key, &object) != 0) {
      // Takes references: another thread may run meanwhile and replace the entry.
      if (!refill_next(place, nb::borrow(key), nb::borrow(object))) return false;
    }
  } else {
    for (const nb::handle item : tensordict_items(level))
      if (!refill_next(place, item[0], item[1])) return false;
  }
  return true;  // if the level had more entries before, the next one does not match
}

bool SameAgain::refill_next(const std::string* place, const nb::object& key,
                            const nb::object& object) {
  if (at_ == entries_.size()) return false;
  Entry& entry = entries_[at_];
  const std::size_t slash = entry.path.rfind('/');
  const bool belongs_here = place == nullptr
                                ? slash == std::string::npos
                                : slash == place->size() && entry.path.starts_with(*place);
  if (!belongs_here) return false;
  if (!entry.key.is(key) &&
      !(PyUnicode_CheckExact(key.ptr()) && PyUnicode_Compare(entry.key.ptr(), key.ptr()) == 0))
    return false;
  ++at_;
  return refill_entry(entry, object);
}

bool SameAgain::refill_entry(Entry& entry, nb::handle object) {
  if (entry.kind == EntryKind::tensor) {
    const auto memory = plain_memory(object);
    if (!memory || memory->dtype != entry.memory.dtype || !(memory->shape == entry.memory.shape))
      return false;
    entry.held->array = nb::borrow(object);
    if (memory->data == entry.memory.data) return true;
    entry.memory = *memory;
    return batch_.try_set(entry.path, tensor_of(*memory, entry.held)).has_value();
  }
  if (entry.kind == EntryKind::dict) return is_such_level(object, entry.level) && refill(object);
  if (!is_scalar(object)) return false;
  Value value = value_from(object, entry.path).value();
  if (value == entry.value) return true;
  entry.value = value;
  return batch_.try_set(entry.path, std::move(value)).has_value();
}

}  // namespace tendon::python
