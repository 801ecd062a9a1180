// SPDX-License-Identifier: Apache-2.0
// How the extension for torch calls Tendon: plain functions behind a PyCapsule of `tendon._tendon`.
// The extension is compiled on the user's machine against the torch there; so it shares neither C++
// symbols, nor a standard library, nor a version of the compiler with the library.
#pragma once

#include <Python.h>

#include <cstdint>

namespace tendon::torch_table {

/// Rises with each change of this file; an extension of another version is refused at its import.
inline constexpr std::uint32_t kVersion = 1;
inline constexpr const char* kCapsule = "tendon._tendon._torch_table";

struct Group;
struct Operation;

enum class Kind : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  gather,
  scatter,
  reduce_scatter,
  all_to_all,
  barrier,
  send,
  recv,
};

/// Tensors as DLManagedTensorVersioned*. start() takes them over, whatever it answers.
struct Tensors {
  void* const* tensors = nullptr;
  std::uint64_t count = 0;
  /// Blocks: one tensor for each member; else one that is cut in equal parts.
  bool is_list = false;
};

struct Request {
  Kind kind = Kind::barrier;
  std::uint8_t reduce = 1;  ///< the number of a ReduceKind
  bool from_any = false;    ///< recv: `rank` says nothing
  std::uint32_t rank = 0;   ///< the root, or the other end of a message
  std::uint32_t tag = 0;
  double factor = 1;  ///< of premul_sum
  Tensors inputs;     ///< also what is changed in place, and what is sent
  Tensors outputs;    ///< also what is received into
};

struct Outcome {
  const char* error = nullptr;  ///< what failed, with code and remedy; null: nothing did
  std::uint32_t rank = 0;       ///< recv: whose message it was
};

/// Calls that take a Group or an Operation may be made by any thread, without the GIL.
struct Table {
  std::uint32_t version = kVersion;
  /// The group of a tendon.Group; null with a Python exception. Holds the GIL.
  Group* (*open)(PyObject* group);
  /// Releases the group, which lives while others hold it.
  void (*close)(Group* group);
  /// Ends every pending operation, on all members.
  void (*abort)(Group* group, const char* reason);
  /// Has its epoch ended? No operation succeeds any more.
  bool (*has_ended)(Group* group);
  /// Never null, does not wait. An error is that of the operation.
  Operation* (*start)(Group* group, const Request& request);
  bool (*is_done)(const Operation* operation);
  /// Makes progress until it is done, or for this time [ns]; true: it is done.
  bool (*wait)(Operation* operation, std::int64_t most_ns);
  /// Its time is over: it ends as a timeout, on all members.
  void (*expire)(Operation* operation);
  /// Calls `done(with)` once on the pump thread, which takes the GIL for nobody, when it is done.
  /// After `most_ns` it expires. Once for each operation.
  void (*notify)(Operation* operation, std::int64_t most_ns, void (*done)(void*), void* with);
  /// Precondition: it is done. The text lives as long as the operation.
  Outcome (*outcome)(Operation* operation);
  /// An operation that is not done continues, but a receive that has no message yet is cancelled.
  void (*drop)(Operation* operation);
};

}  // namespace tendon::torch_table
