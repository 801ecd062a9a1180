// SPDX-License-Identifier: Apache-2.0
// Tensors to and from other frameworks without a copy, by the DLPack protocol.
#pragma once

#include <memory>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/dlpack_abi.hpp>
#include <tendon/tensor/tensor.hpp>

namespace tendon {
inline namespace v0 {

/// The tensor for a consumer of DLPack 1.x; the consumer calls its deleter once. It holds a share
/// of the memory and says READ_ONLY where the tensor is. Allocates once.
[[nodiscard]] TENDON_API dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& tensor);
/// For consumers of the unversioned struct, which cannot say READ_ONLY: the error read_only for a
/// tensor that is.
[[nodiscard]] TENDON_API Result<dlpack::DLManagedTensor*> to_dlpack_unversioned(
    const Tensor& tensor);

/// Takes the tensor over. Its deleter is called exactly once: when the last share of the memory
/// goes, or before an error is returned, so the caller never calls it.
///
/// Memory of a GPU is taken as it is: the caller knows in the order of which stream it may be read.
///
/// unsupported_device off the CPU and the GPUs of CUDA, unsupported_dtype for lanes or parts of
/// bytes, version_mismatch for another major version, invalid_argument for a shape that cannot be
/// (negative, null, too large), limit_exceeded for too many dimensions.
[[nodiscard]] TENDON_API Result<Tensor> from_dlpack(dlpack::DLManagedTensorVersioned* managed);
[[nodiscard]] TENDON_API Result<Tensor> from_dlpack(dlpack::DLManagedTensor* managed);

}  // namespace v0
}  // namespace tendon
