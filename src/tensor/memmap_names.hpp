// SPDX-License-Identifier: Apache-2.0
// Names and rules of the folders and files of memory-mapped tensors.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>
#include <tendon/tensor/dtype.hpp>

#include "tensor/tree.hpp"

namespace tendon::v0::detail {

/// The file of that name in each folder.
inline constexpr std::string_view kMemmapMeta = "meta.json";
/// The words of meta.json about a folder itself. An entry with such a name could not be told from
/// them.
inline constexpr std::array<std::string_view, 6> kMemmapWords{
    "shape", "device", "_type", "_format_version", "_class", "_names"};
[[nodiscard]] inline bool is_memmap_word(std::string_view key) {
  return std::ranges::find(kMemmapWords, key) != kMemmapWords.end();
}

/// The file or folder of a key, without ".memmap": characters that some file system refuses are
/// written %XX; "" is "%".
[[nodiscard]] std::string memmap_file_name(std::string_view key);

/// "torch.float32"; nullopt for a type that tensordict does not map.
[[nodiscard]] std::optional<std::string> memmap_dtype(DType dtype);
[[nodiscard]] std::optional<DType> dtype_of_memmap(std::string_view name);
/// Checks that a folder or file can hold this leaf. Errors name its path.
[[nodiscard]] Result<void> check_memmap_leaf(const TreeLeaf& leaf, std::string_view path,
                                             std::string_view where);

/// The reason for refusing a lazy stack there.
inline constexpr std::string_view kStackInBatch =
    "it is a lazy stack inside of a TensorDict with a batch size, which no part of it has; a "
    "TensorDict of Tendon cannot hold that";

}  // namespace tendon::v0::detail
