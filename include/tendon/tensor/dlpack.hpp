// SPDX-License-Identifier: Apache-2.0
// Exchanges tensors with other frameworks without a copy, by the DLPack protocol.
#pragma once

#include <memory>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/dlpack_abi.hpp>
#include <tendon/tensor/tensor.hpp>

namespace tendon {
inline namespace v0 {

/// Returns the tensor for a consumer of DLPack 1.x, which calls its deleter once. It holds a share
/// of the memory, and has READ_ONLY set if the tensor is read-only. Allocates once.
[[nodiscard]] TENDON_API dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
/// The same for consumers of the unversioned struct, which has no READ_ONLY: the error read_only
/// for a read-only tensor.
[[nodiscard]] TENDON_API Result<dlpack::DLManagedTensor*> to_dlpack_unversioned(
    const Tensor& tensor);

/// Takes the tensor over. Its deleter is called exactly once: when the last share of the memory is
/// dropped, or before an error is returned. The caller never calls it.
///
/// Memory of a GPU is taken as it is: the caller must know in which stream's order it may be read.
///
/// unsupported_device for other devices than the CPU and GPUs of CUDA; unsupported_dtype for lanes
/// or parts of bytes; version_mismatch for another major version; invalid_argument for an
/// impossible shape (negative, null, too large); limit_exceeded for too many dimensions.
[[nodiscard]] TENDON_API Result<Tensor> from_dlpack(dlpack::DLManagedTensorVersioned* managed);
[[nodiscard]] TENDON_API Result<Tensor> from_dlpack(dlpack::DLManagedTensor* managed);

}  // namespace v0
}  // namespace tendon
