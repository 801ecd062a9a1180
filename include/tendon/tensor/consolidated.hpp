// SPDX-License-Identifier: Apache-2.0
// Files of consolidated TensorDicts, as tensordict writes and reads them (TensorDict.consolidate
// with a filename, and from_consolidated). Such a file has the leaves in Layout::tensordict, a JSON
// object that describes them, and the length of its text as an i64.
// Source: https://github.com/pytorch/tensordict, version 0.15.3.
#pragma once

#include <filesystem>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/memmap.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon {
inline namespace v0 {

/// Loads the TensorDict of such a file, as views of the mapped file. Lazy stacks become TensorDicts
/// of their parts, named 0, 1, ...; stacks of non-tensor data become lists.
///
/// The file is not trusted: corrupt_data, limit_exceeded, unsupported_dtype; not_supported for
/// tensorclasses and jagged tensors; file_not_found, permission_denied. Copies nothing.
[[nodiscard]] TENDON_API Result<TensorDict> load_consolidated(
    const std::filesystem::path& path, MapMode mode = MapMode::copy_on_write);

/// The same, but waits for a writer, as load_memmap() with a deadline does.
[[nodiscard]] TENDON_API Result<TensorDict> load_consolidated(
    const std::filesystem::path& path, Deadline deadline, MapMode mode = MapMode::copy_on_write);

/// The same for a whole file in memory.
[[nodiscard]] TENDON_API Result<TensorDict> parse_consolidated(const Storage& file);

/// Writes such a file through an AtomicFile. invalid_argument for an entry that the format cannot
/// hold: a tensor that is exempt from the batch size, a nested TensorDict whose name the object
/// uses itself ("leaves", "cls", ...), a c128 tensor whose first byte would not be a multiple of
/// 16. unsupported_dtype for eight-bit floats; errors of AtomicFile.
[[nodiscard]] TENDON_API Result<void> save_consolidated(const std::filesystem::path& path,
                                                        const TensorDict& dict);

}  // namespace v0
}  // namespace tendon
