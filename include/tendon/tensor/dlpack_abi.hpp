// SPDX-License-Identifier: Apache-2.0
// The C structs of DLPack 1.x, declared from its published specification
// (https://dmlc.github.io/dlpack/latest/c_api.html). Their layout is a contract between libraries.
// The names are in a namespace, so that the official header may be included beside this one.
#pragma once

#include <cstdint>

namespace tendon {
inline namespace v0 {
namespace dlpack {

inline constexpr std::uint32_t kMajorVersion = 1;
/// The minor version of the declared types; minor versions only add numbers.
inline constexpr std::uint32_t kMinorVersion = 1;

inline constexpr std::uint64_t kFlagReadOnly = 1u << 0;
inline constexpr std::uint64_t kFlagIsCopied = 1u << 1;

struct DLDevice {
  std::int32_t device_type;
  std::int32_t device_id;
};

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};

struct DLTensor {
  void* data;
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< [elements]; may be null for row-major in the unversioned struct
  std::uint64_t byte_offset;
};

/// The struct of versions before 1.0: no version and no flags.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  std::uint64_t flags;
  DLTensor dl_tensor;
};

}  // namespace dlpack
}  // namespace v0
}  // namespace tendon
