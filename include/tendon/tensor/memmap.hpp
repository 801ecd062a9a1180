// SPDX-License-Identifier: Apache-2.0
// Folders of memory-mapped tensors, as tensordict writes and reads them (TensorDict.memmap and
// load_memmap). A folder has a file KEY.memmap for each tensor, its bytes alone, a folder for each
// nested TensorDict, and meta.json, which is written last.
// Source: https://github.com/pytorch/tensordict, version 0.15.3.
#pragma once

#include <cstdint>
#include <filesystem>
#include <tendon/core/deadline.hpp>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/core/words.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon {
inline namespace v0 {

/// The readers that see writes to a mapped tensor; the letters are those of numpy.memmap.
enum class MapMode : std::uint8_t {
  copy_on_write,  ///< only this process
  read_only,      ///< this process may not write
  read_write,     ///< the file has them, and every process that has mapped it sees them
};
[[nodiscard]] consteval std::array<Word<MapMode>, 3> words_of(MapMode) {
  return {{{MapMode::copy_on_write, "c"}, {MapMode::read_only, "r"}, {MapMode::read_write, "r+"}}};
}

/// Loads the TensorDict of a folder, as views of its mapped files. Lazy stacks become TensorDicts
/// of their parts, named 0, 1, ...; stacks of non-tensor data become lists.
///
/// The folder is not trusted: corrupt_data if a file is missing, has another size than meta.json
/// says, or meta.json cannot be read; limit_exceeded; unsupported_dtype; not_supported for
/// tensorclasses, jagged tensors and folders of a later format; file_not_found and
/// permission_denied for the folder itself. Costs a mapping for each tensor and copies none.
///
/// A process that shortens a mapped file makes its readers die of SIGBUS. save_memmap() replaces
/// files, so processes that have mapped the former ones keep them.
[[nodiscard]] TENDON_API Result<TensorDict> load_memmap(const std::filesystem::path& folder,
                                                        MapMode mode = MapMode::copy_on_write);

/// The same, but waits for a writer: for processes that meet in a folder on a shared file system. A
/// folder is whole once its meta.json is there, which save_memmap() and tensordict's writers write
/// last; a half-written file is read again. `timeout` at the deadline says what is missing or
/// cannot be read. Looks every 50 ms at least; on NFS the system may show new names only after some
/// seconds (`acdirmin`).
[[nodiscard]] TENDON_API Result<TensorDict> load_memmap(const std::filesystem::path& folder,
                                                        Deadline deadline,
                                                        MapMode mode = MapMode::copy_on_write);

/// Writes such a folder, and makes it if it is missing. Each file appears when it is whole and on
/// the disk, and meta.json after those that it names. A reader finds the old folder or the new one,
/// and between them files of both. Other files in the folder stay.
///
/// invalid_argument for an entry that the format cannot hold: a tensor that is exempt from the
/// batch size, or a name that meta.json uses itself ("shape", "device", "_type", ...).
/// unsupported_dtype for eight-bit floats; errors of AtomicFile.
[[nodiscard]] TENDON_API Result<void> save_memmap(const std::filesystem::path& folder,
                                                  const TensorDict& dict);

}  // namespace v0
}  // namespace tendon
