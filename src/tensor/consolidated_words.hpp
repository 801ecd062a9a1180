// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace tendon::v0::detail {

/// The words of the object of a consolidated TensorDict about a level itself. A nested one with
/// such a name could not be told from them.
inline constexpr std::array<std::string_view, 7> kConsolidatedWords{
    "cls", "non_tensors", "leaves", "cls_metadata", "size", "_total_bytes", "_device"};
[[nodiscard]] inline bool is_consolidated_word(std::string_view key) {
  return std::ranges::find(kConsolidatedWords, key) != kConsolidatedWords.end();
}

}  // namespace tendon::v0::detail
