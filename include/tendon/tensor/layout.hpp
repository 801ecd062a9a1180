// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/words.hpp>
#include <vector>

namespace tendon {
inline namespace v0 {

/// Rules that place the leaves of a schema in one run of bytes. Each is a pure function of the
/// schema, so both ends compute it and no offset travels. Row-major everywhere.
enum class Layout : std::uint8_t {
  /// Leaves in the schema's order, each at the next multiple of 64 bytes.
  aligned = 1,
  /// Leaves without gaps, as safetensors files need it: by falling rank of the element type, in the
  /// order of the safetensors writer (U64 I64 F64 C64 F32 U32 I32 BF16 F16 U16 I16 ... U8 BOOL),
  /// then in the schema's order. Each therefore starts at a multiple of its element size.
  safetensors = 2,
  /// Leaves in the schema's order, each padded to a multiple of 8 bytes, the last one too, as
  /// consolidate() of the Python package tensordict packs them.
  tensordict = 3,
};
TENDON_WORDS(Layout, aligned, safetensors, tensordict);

inline constexpr std::uint64_t kLeafAlignmentBytes = 64;

/// The place of each leaf of one schema under one layout.
struct PackedLayout {
  /// The place of each leaf, by its index in the schema [bytes from the start].
  std::vector<std::uint64_t> offsets;
  /// Indices of the leaves by rising offset; those without bytes stay in the schema's order.
  std::vector<std::uint32_t> order;
  /// The size of a buffer: up to the end of the last leaf, for `tensordict` of its padding [bytes].
  std::uint64_t total_bytes = 0;
};

}  // namespace v0
}  // namespace tendon
