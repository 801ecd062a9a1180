// SPDX-License-Identifier: Apache-2.0
// The limits of a tensor, a TensorDict, a schema and a file. They hold for data from outside and
// for data built here, so that nothing can be made that cannot be sent or saved.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tendon {
inline namespace v0 {

/// Dimensions of one tensor.
inline constexpr std::size_t kMaxDimensions = 16;
/// Bytes of one name (UTF-8, before escaping).
inline constexpr std::size_t kMaxNameBytes = 255;
/// Bytes of one path as written, with its separators and escapes.
inline constexpr std::size_t kMaxPathBytes = 4096;
/// Names in one path; also the nesting of non-tensor values.
inline constexpr std::size_t kMaxDepth = 32;
/// Tensors in one TensorDict.
inline constexpr std::size_t kMaxLeaves = 65536;
/// TensorDicts inside one TensorDict, itself included.
inline constexpr std::size_t kMaxNodes = 65536;
/// Bytes of one schema's encoding, and of all its paths together. Otherwise a deep tree could name
/// 64 Ki leaves with few bytes each and cost its reader 256 MiB of paths.
inline constexpr std::size_t kMaxSchemaBytes = 16u << 20;
/// Bytes of the non-tensor data of one TensorDict as JSON.
inline constexpr std::size_t kMaxValuesBytes = 1u << 20;
/// Bytes of the JSON header of a safetensors file.
inline constexpr std::size_t kMaxFileHeaderBytes = 16u << 20;
/// Bytes of one tensor, and of all leaves of a TensorDict together.
inline constexpr std::uint64_t kMaxTensorBytes = (1ull << 63) - 1;

}  // namespace v0
}  // namespace tendon
