// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/bytes.hpp>
#include <tendon/tensor/layout.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::v0::detail {

/// Bytes [offset_bytes, offset_bytes + piece.size()) of `source` packed by `layout`; gaps between
/// leaves become zero. Precondition: inside schema()->layout(layout).total_bytes.
void pack_piece(const TensorDict& source, Layout layout, std::uint64_t offset_bytes,
                MutableBytes piece);
/// The other way round, into leaves that exist; gaps are skipped.
void unpack_piece(Bytes piece, const TensorDict& destination, Layout layout,
                  std::uint64_t offset_bytes);

}  // namespace tendon::v0::detail
