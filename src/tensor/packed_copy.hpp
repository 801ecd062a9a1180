// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/bytes.hpp>
#include <tendon/tensor/layout.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::v0::detail {

/// Packs bytes [offset_bytes, offset_bytes + piece.size()) of `source` by `layout`; gaps between
/// leaves become zero. Precondition: inside schema()->layout(layout).total_bytes.
void pack_piece(const TensorDict& source, Layout layout, std::uint64_t offset_bytes,
                MutableBytes piece);
/// The reverse, into existing leaves; gaps are skipped.
void unpack_piece(Bytes piece, const TensorDict& destination, Layout layout,
                  std::uint64_t offset_bytes);

}  // namespace tendon::v0::detail
