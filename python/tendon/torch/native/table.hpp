// SPDX-License-Identifier: Apache-2.0
// The interface by which the extension for torch calls Tendon: plain functions behind a PyCapsule
// of `tendon._tendon`. The extension is compiled on the user's machine against the torch there. It
// therefore shares no C++ symbols, standard library or compiler version with the library.
#pragma once

#include <Python.h>

#include <cstdint>

namespace tendon::torch_table {

/// Rises with each change of this file; an extension of another version is refused at import.
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

/// Tensors as DLManagedTensorVersioned*. start() takes ownership, whatever it returns.
struct Tensors {
  void* const* tensors = nullptr;
  std::uint64_t count = 0;
  /// True: one tensor for each member; false: one tensor that is cut in equal parts.
  bool is_list = false;
};

struct Request {
  Kind kind = Kind::barrier;
  std::uint8_t reduce = 1;  ///< the number of a ReduceKind
  bool from_any = false;    ///< recv: `rank` is ignored
  std::uint32_t rank = 0;   ///< the root, or the other end of a message
  std::uint32_t tag = 0;
  double factor = 1;  ///< for premul_sum
  Tensors inputs;     ///< also tensors changed in place, and those to send
  Tensors outputs;    ///< also receive buffers
};

struct Outcome {
  const char* error = nullptr;  ///< the failure, with code and remedy; null: none
  std::uint32_t rank = 0;       ///< recv: the sender
};

/// Calls that take a Group or an Operation may be made by any thread, without the GIL.
struct Table {
  std::uint32_t version = kVersion;
  /// Returns the group of a tendon.Group; null with a Python exception. Holds the GIL.
  Group* (*open)(PyObject* group);
  /// Releases the caller's share of the group.
  void (*close)(Group* group);
  /// Ends every pending operation, on all members.
  void (*abort)(Group* group, const char* reason);
  /// True if its epoch has ended, after which no operation succeeds.
  bool (*has_ended)(Group* group);
  /// Never null; does not wait. An error is reported by the operation.
  Operation* (*start)(Group* group, const Request& request);
  bool (*is_done)(const Operation* operation);
  /// Makes progress until it is done or this time [ns] has passed; true if done.
  bool (*wait)(Operation* operation, std::int64_t most_ns);
  /// Ends it as a timeout, on all members.
  void (*expire)(Operation* operation);
  /// Calls `done(with)` once when it is done, on the pump thread, which does not take the GIL.
  /// After `most_ns` the operation expires. At most one call for each operation.
  void (*notify)(Operation* operation, std::int64_t most_ns, void (*done)(void*), void* with);
  /// Returns the outcome. Precondition: it is done. The text lives as long as the operation.
  Outcome (*outcome)(Operation* operation);
  /// Drops the caller's share. A pending operation continues, but a receive without a message is
  /// cancelled.
  void (*drop)(Operation* operation);
};

}  // namespace tendon::torch_table
