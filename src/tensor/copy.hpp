// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/tensor.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::v0::detail {

// A tensor's row-major bytes are its elements in row-major order without gaps, whatever its
// strides. All functions take CPU tensors only, and the memory on both sides must not overlap.

/// Copies row-major bytes [offset_bytes, offset_bytes + piece.size()) of `source` to `piece`: any
/// byte may be the first, so that long copies go in pieces. Precondition: inside
/// source.size_bytes().
void gather_piece(const Tensor& source, std::uint64_t offset_bytes, MutableBytes piece);
/// The other way round: `piece` becomes those bytes of `destination`, which must be writable.
void scatter_piece(Bytes piece, const Tensor& destination, std::uint64_t offset_bytes);

/// All of it. Precondition: destination.size() == source.size_bytes().
void gather(const Tensor& source, MutableBytes destination);
void scatter(Bytes source, const Tensor& destination);
/// Element by element, same dtype and shape.
void copy_strided(const Tensor& destination, const Tensor& source);

/// Bytes [offset_bytes, offset_bytes + piece.size()) of `source` packed by `layout`; gaps between
/// leaves become zero. Precondition: inside schema()->layout(layout).total_bytes.
void pack_piece(const TensorDict& source, Layout layout, std::uint64_t offset_bytes,
                MutableBytes piece);
/// The other way round, into leaves that exist; gaps are skipped.
void unpack_piece(Bytes piece, const TensorDict& destination, Layout layout,
                  std::uint64_t offset_bytes);

/// Refuses what cannot be received into: read_only, unsupported_device, overlapping (a leaf two of
/// whose elements share memory, or two leaves that do), naming the leaf.
[[nodiscard]] Result<void> check_destination(const TensorDict& destination);

}  // namespace tendon::v0::detail
