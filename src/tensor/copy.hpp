// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/bytes.hpp>
#include <tendon/tensor/tensor.hpp>

namespace tendon::v0::detail {

// A tensor's row-major bytes are its elements in row-major order without gaps, whatever its
// strides. All functions take CPU tensors only, and the memory on both sides must not overlap.

/// Copies row-major bytes [offset_bytes, offset_bytes + piece.size()) of `source` to `piece`. Any
/// byte may be the first, so that long copies can be cut. Precondition: inside source.size_bytes().
void gather_piece(const Tensor& source, std::uint64_t offset_bytes, MutableBytes piece);
/// The reverse: `piece` becomes those bytes of `destination`, which must be writable.
void scatter_piece(Bytes piece, const Tensor& destination, std::uint64_t offset_bytes);

/// The same for a part of a copy of `whole_bytes`, whose size decides how it is copied.
void gather_part(const Tensor& source, std::uint64_t offset_bytes, MutableBytes piece,
                 std::uint64_t whole_bytes);
void scatter_part(Bytes piece, const Tensor& destination, std::uint64_t offset_bytes,
                  std::uint64_t whole_bytes);

/// Copies all of it. Precondition: destination.size() == source.size_bytes().
void gather(const Tensor& source, MutableBytes destination);
void scatter(Bytes source, const Tensor& destination);
/// Copies element by element, same dtype and shape.
void copy_strided(const Tensor& destination, const Tensor& source);

}  // namespace tendon::v0::detail
