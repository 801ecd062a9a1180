// SPDX-License-Identifier: Apache-2.0
// Types and numbers of the CUDA driver, as it has them in memory, so that no header of CUDA is
// needed. The comment behind each is CUDA's name for it: tests/interop/check_cuda_header.py makes
// a program of them that compares sizes, places and values with cuda.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tendon::v0::detail::cuda {

using DeviceOrdinal = int;                   // CUdevice
using DeviceAddress = std::uint64_t;         // CUdeviceptr
using MemoryHandle = std::uint64_t;          // CUmemGenericAllocationHandle
using ContextHandle = struct Context_*;      // CUcontext
using StreamHandle = struct Stream_*;        // CUstream
using EventHandle = struct Event_*;          // CUevent
using ModuleHandle = struct Module_*;        // CUmodule
using FunctionHandle = struct Function_*;    // CUfunction
using GraphHandle = struct Graph_*;          // CUgraph
using GraphNodeHandle = struct GraphNode_*;  // CUgraphNode

/// Streams that always exist are small numbers.
inline constexpr std::uintptr_t kPerThreadStream = 2;  // CU_STREAM_PER_THREAD
inline constexpr std::uintptr_t kLegacyStream = 1;     // CU_STREAM_LEGACY

/// The answers of calls that Tendon tells apart. A driver has others too.
enum class Status : int {                // CUresult
  success = 0,                           // CUDA_SUCCESS
  invalid_value = 1,                     // CUDA_ERROR_INVALID_VALUE
  out_of_memory = 2,                     // CUDA_ERROR_OUT_OF_MEMORY
  not_initialized = 3,                   // CUDA_ERROR_NOT_INITIALIZED
  deinitialized = 4,                     // CUDA_ERROR_DEINITIALIZED
  stub_library = 34,                     // CUDA_ERROR_STUB_LIBRARY
  device_unavailable = 46,               // CUDA_ERROR_DEVICE_UNAVAILABLE
  no_device = 100,                       // CUDA_ERROR_NO_DEVICE
  invalid_device = 101,                  // CUDA_ERROR_INVALID_DEVICE
  invalid_image = 200,                   // CUDA_ERROR_INVALID_IMAGE
  invalid_context = 201,                 // CUDA_ERROR_INVALID_CONTEXT
  ecc_uncorrectable = 214,               // CUDA_ERROR_ECC_UNCORRECTABLE
  nvlink_uncorrectable = 220,            // CUDA_ERROR_NVLINK_UNCORRECTABLE
  contained = 226,                       // CUDA_ERROR_CONTAINED @12080
  invalid_handle = 400,                  // CUDA_ERROR_INVALID_HANDLE
  not_found = 500,                       // CUDA_ERROR_NOT_FOUND
  not_ready = 600,                       // CUDA_ERROR_NOT_READY
  illegal_address = 700,                 // CUDA_ERROR_ILLEGAL_ADDRESS
  launch_timeout = 702,                  // CUDA_ERROR_LAUNCH_TIMEOUT
  context_is_destroyed = 709,            // CUDA_ERROR_CONTEXT_IS_DESTROYED
  assert_failed = 710,                   // CUDA_ERROR_ASSERT
  host_memory_already_registered = 712,  // CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
  host_memory_not_registered = 713,      // CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
  hardware_stack_error = 714,            // CUDA_ERROR_HARDWARE_STACK_ERROR
  illegal_instruction = 715,             // CUDA_ERROR_ILLEGAL_INSTRUCTION
  misaligned_address = 716,              // CUDA_ERROR_MISALIGNED_ADDRESS
  invalid_address_space = 717,           // CUDA_ERROR_INVALID_ADDRESS_SPACE
  invalid_pc = 718,                      // CUDA_ERROR_INVALID_PC
  launch_failed = 719,                   // CUDA_ERROR_LAUNCH_FAILED
  tensor_memory_leak = 721,              // CUDA_ERROR_TENSOR_MEMORY_LEAK @12080
  not_permitted = 800,                   // CUDA_ERROR_NOT_PERMITTED
  not_supported = 801,                   // CUDA_ERROR_NOT_SUPPORTED
  system_driver_mismatch = 803,          // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
  mps_client_terminated = 810,           // CUDA_ERROR_MPS_CLIENT_TERMINATED
  stream_capture_unsupported = 900,      // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
  stream_capture_invalidated = 901,      // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
  stream_capture_implicit = 906,         // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
  captured_event = 907,                  // CUDA_ERROR_CAPTURED_EVENT
  external_device = 911,                 // CUDA_ERROR_EXTERNAL_DEVICE
  unknown = 999,                         // CUDA_ERROR_UNKNOWN
};

enum class DeviceAttribute : int {  // CUdevice_attribute
  unified_addressing = 41,          // CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
  compute_capability_major = 75,    // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
  compute_capability_minor = 76,    // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
  host_register = 99,               // CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
  virtual_memory_management = 102,  // CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  posix_descriptors = 103,        // CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
  read_only_host_register = 113,  // CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
  stream_operations_of_64_bits = 122,  // CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
};

enum class StreamFlags : unsigned {  // CUstream_flags
  blocking = 0,                      // CU_STREAM_DEFAULT
  non_blocking = 1,                  // CU_STREAM_NON_BLOCKING
};

enum class EventFlags : unsigned {  // CUevent_flags
  timed = 0,                        // CU_EVENT_DEFAULT
  untimed = 2,                      // CU_EVENT_DISABLE_TIMING
};

enum class WaitCondition : unsigned {  // CUstreamWaitValue_flags
  at_least = 0,                        // CU_STREAM_WAIT_VALUE_GEQ
  equal = 1,                           // CU_STREAM_WAIT_VALUE_EQ
};

/// Work before the write is visible before it.
enum class WriteOrder : unsigned {  // CUstreamWriteValue_flags
  fenced = 0,                       // CU_STREAM_WRITE_VALUE_DEFAULT
};

enum class CaptureStatus : int {  // CUstreamCaptureStatus
  none = 0,                       // CU_STREAM_CAPTURE_STATUS_NONE
  active = 1,                     // CU_STREAM_CAPTURE_STATUS_ACTIVE
  invalidated = 2,                // CU_STREAM_CAPTURE_STATUS_INVALIDATED
};

enum class CaptureMode : int {  // CUstreamCaptureMode
  global = 0,                   // CU_STREAM_CAPTURE_MODE_GLOBAL
  this_thread = 1,              // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
  relaxed = 2,                  // CU_STREAM_CAPTURE_MODE_RELAXED
};

enum class LocationType : int {  // CUmemLocationType
  invalid = 0,                   // CU_MEM_LOCATION_TYPE_INVALID
  device = 1,                    // CU_MEM_LOCATION_TYPE_DEVICE
};

enum class AllocationType : int {  // CUmemAllocationType
  invalid = 0,                     // CU_MEM_ALLOCATION_TYPE_INVALID
  pinned = 1,                      // CU_MEM_ALLOCATION_TYPE_PINNED
};

enum class HandleType : int {  // CUmemAllocationHandleType
  none = 0,                    // CU_MEM_HANDLE_TYPE_NONE
  posix_descriptor = 1,        // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
};

enum class AccessFlags : int {  // CUmemAccess_flags
  none = 0,                     // CU_MEM_ACCESS_FLAGS_PROT_NONE
  read = 1,                     // CU_MEM_ACCESS_FLAGS_PROT_READ
  read_write = 3,               // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

enum class GranularityKind : int {  // CUmemAllocationGranularity_flags
  minimum = 0,                      // CU_MEM_ALLOC_GRANULARITY_MINIMUM
  recommended = 1,                  // CU_MEM_ALLOC_GRANULARITY_RECOMMENDED
};

enum class MemoryType : unsigned {  // CUmemorytype
  host = 1,                         // CU_MEMORYTYPE_HOST
  device = 2,                       // CU_MEMORYTYPE_DEVICE
};

enum class PointerAttribute : int {  // CUpointer_attribute
  context = 1,                       // CU_POINTER_ATTRIBUTE_CONTEXT
  memory_type = 2,                   // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
  device_pointer = 3,                // CU_POINTER_ATTRIBUTE_DEVICE_POINTER
  host_pointer = 4,                  // CU_POINTER_ATTRIBUTE_HOST_POINTER
  is_managed = 8,                    // CU_POINTER_ATTRIBUTE_IS_MANAGED
  device_ordinal = 9,                // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  range_start = 11,                  // CU_POINTER_ATTRIBUTE_RANGE_START_ADDR
  range_bytes = 12,                  // CU_POINTER_ATTRIBUTE_RANGE_SIZE
  is_mapped = 13,                    // CU_POINTER_ATTRIBUTE_MAPPED
};

enum class SourceOrder : int {  // CUmemcpySrcAccessOrder @12080
  invalid = 0,                  // CU_MEMCPY_SRC_ACCESS_ORDER_INVALID
  stream = 1,                   // CU_MEMCPY_SRC_ACCESS_ORDER_STREAM
};

/// Flags of a registration; `read_only` is what a read-only mapping needs.
inline constexpr unsigned kRegisterPortable = 1;  // CU_MEMHOSTREGISTER_PORTABLE
inline constexpr unsigned kRegisterMapped = 2;    // CU_MEMHOSTREGISTER_DEVICEMAP
inline constexpr unsigned kRegisterReadOnly = 8;  // CU_MEMHOSTREGISTER_READ_ONLY

struct Uuid {                           // CUuuid
  std::array<unsigned char, 16> bytes;  // bytes
};

struct Location {     // CUmemLocation
  LocationType type;  // type
  int id;             // id
};

struct AllocationFlags {                  // decltype(CUmemAllocationProp::allocFlags)
  unsigned char compression;              // compressionType
  unsigned char direct_rdma;              // gpuDirectRDMACapable
  unsigned short usage;                   // usage
  std::array<unsigned char, 4> reserved;  // reserved
};

struct AllocationProperties {  // CUmemAllocationProp
  AllocationType type;         // type
  HandleType handle_types;     // requestedHandleTypes
  Location location;           // location
  void* windows_attributes;    // win32HandleMetaData
  AllocationFlags flags;       // allocFlags
};

struct AccessDescription {  // CUmemAccessDesc
  Location location;        // location
  AccessFlags flags;        // flags
};

struct CopyAttributes {           // CUmemcpyAttributes @12080
  SourceOrder source_order;       // srcAccessOrder
  Location source_location;       // srcLocHint
  Location destination_location;  // dstLocHint
  unsigned flags;                 // flags
};

}  // namespace tendon::v0::detail::cuda
