// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::python {

/// Notes the key on which the program received read-only memory, so that a process that dies of a
/// write there can name it. NumPy refuses such a write; torch.from_numpy and ctypes do not.
///
/// Owns:    a process-wide table of kMostReadOnly places, one for each address of samples. If more
///          are in use, an old note is overwritten. The first note calls
///          explain_memory_faults().
/// Threads: notes need the GIL; look-ups are legal on all threads, also in a signal handler.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a hash of the key and a look at 8 places; a copy of the key if it differs from the last
///          one.
///
/// Skips memory that no peer maps, and writable memory.
void note_read_only(const Storage& memory, std::string_view key);
void note_read_only(const TensorDict& batch, std::string_view key);

/// The key of the memory last handed out at this address, without hidden characters and at most
/// kKeyShownBytes long; empty if unknown. The view points into the table, whose text may change.
[[nodiscard]] std::string_view key_of_read_only(const void* address) noexcept;

inline constexpr std::size_t kMostReadOnly = 4096;
inline constexpr std::size_t kKeyShownBytes = 120;

}  // namespace tendon::python
