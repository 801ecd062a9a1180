// SPDX-License-Identifier: Apache-2.0
// The tree of a TensorDict in a safetensors file: the structure in __metadata__["tensordict"], as
// tensordict 0.15.3 writes it, and TensorDicts made from it.
#pragma once

#include <string>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/safetensors.hpp>
#include <tendon/tensor/tensor_dict.hpp>
#include <unordered_map>

namespace tendon::v0::detail {

struct BuiltTensors {
  TensorDict dict;
  std::unordered_map<std::string, std::size_t> entry_of_path;
};

/// Makes the tensors of a checked header as views on `storage`, which holds the whole file. The
/// metadata are not trusted.
[[nodiscard]] Result<BuiltTensors> build_tensors(const SafetensorsHeader& header,
                                                 const Storage& storage);

/// The key of the structure in __metadata__.
inline constexpr std::string_view kStructureKey = "tensordict";

/// The words of a file about a TensorDict, beside the tensors' bytes.
struct FileNames {
  /// The name of each leaf, by its index in the schema.
  std::vector<std::string> tensor_names;
  /// JSON for __metadata__["tensordict"]; empty if a flat list of names is enough.
  std::string structure;
};
[[nodiscard]] Result<FileNames> name_tensors(const TensorDict& dict);

}  // namespace tendon::v0::detail
