// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <tendon/tensor/dtype.hpp>
#include <tendon/tensor/shape.hpp>

namespace tendon::v0::detail {

/// The bytes that a strided tensor touches, counted from its element [0, 0, ...]: from `begin` (0
/// or less) to `end`.
struct ByteExtent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// nullopt when it does not fit in 63 bits. Precondition: at least one element, as many strides as
/// dimensions.
[[nodiscard]] inline std::optional<ByteExtent> byte_extent(DType dtype, const Shape& shape,
                                                           const Strides& strides) {
  const auto item_bytes = static_cast<std::int64_t>(item_size_bytes(dtype));
  ByteExtent extent{0, item_bytes};
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::int64_t span = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &span) ||
        __builtin_mul_overflow(span, item_bytes, &span)) {
      return std::nullopt;
    }
    std::int64_t& side = span < 0 ? extent.begin : extent.end;
    if (__builtin_add_overflow(side, span, &side)) return std::nullopt;
  }
  return extent;
}

}  // namespace tendon::v0::detail
