// SPDX-License-Identifier: Apache-2.0
// The table of C functions by which libraries exchange tensors without a Python call, declared from
// the specification of DLPack 1.3 (https://dmlc.github.io/dlpack/latest/c_api.html). A Python type
// has it as a capsule in its attribute `__dlpack_c_exchange_api__`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tendon/tensor/dlpack_abi.hpp>

namespace tendon::python {

inline constexpr const char* kExchangeAttribute = "__dlpack_c_exchange_api__";
inline constexpr const char* kExchangeCapsule = "dlpack_exchange_api";

/// The header, whose layout is the same in every version.
struct DLPackExchangeAPIHeader {
  dlpack::DLPackVersion version;
  DLPackExchangeAPIHeader* prev_api;  ///< the table of an older version; may be null
};

/// The table of major version 1. Objects are PyObject*. All functions need the GIL. Those with an
/// int result return 0, or -1 with a Python exception set.
struct DLPackExchangeAPI {
  DLPackExchangeAPIHeader header;
  int (*managed_tensor_allocator)(dlpack::DLTensor* prototype,
                                  dlpack::DLManagedTensorVersioned** out, void* error_context,
                                  void (*set_error)(void* error_context, const char* kind,
                                                    const char* message));
  /// `out` owns a share of the memory.
  int (*managed_tensor_from_py_object_no_sync)(void* object,
                                               dlpack::DLManagedTensorVersioned** out);
  /// Takes ownership of `tensor`.
  int (*managed_tensor_to_py_object_no_sync)(dlpack::DLManagedTensorVersioned* tensor,
                                             void** out_object);
  /// May be null. The object keeps the memory, shape and strides.
  int (*dltensor_from_py_object_no_sync)(void* object, dlpack::DLTensor* out);
  int (*current_work_stream)(std::int32_t device_type, std::int32_t device_id, void** out_stream);
};

static_assert(sizeof(DLPackExchangeAPIHeader) == 16 && sizeof(DLPackExchangeAPI) == 56);
static_assert(offsetof(DLPackExchangeAPI, managed_tensor_from_py_object_no_sync) == 24);
static_assert(offsetof(DLPackExchangeAPI, managed_tensor_to_py_object_no_sync) == 32);
static_assert(offsetof(DLPackExchangeAPI, dltensor_from_py_object_no_sync) == 40);
static_assert(offsetof(DLPackExchangeAPI, current_work_stream) == 48);

}  // namespace tendon::python
