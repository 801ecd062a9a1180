// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <tendon/memory/storage.hpp>
#include <tendon/tensor/tensor_dict.hpp>

namespace tendon::python {

/// On which key memory that may only be read was handed to the program, so that a process that
/// dies of a write there can name it. NumPy refuses such a write; torch.from_numpy and ctypes do
/// not ask.
///
/// Owns:    a table of the process with kMostReadOnly places, one for each place in memory at which
///          samples were; where more are in use, the oldest of some is forgotten. The first note
///          has explain_memory_faults() called.
/// Threads: notes with the GIL; questions from everywhere, also in a signal handler.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a hash of the key and a look at 8 places; a copy of the key where it is another one
///          than was there.
///
/// Memory that no peer maps, and memory that may be written, is passed over.
void note_read_only(const Storage& memory, std::string_view key);
void note_read_only(const TensorDict& batch, std::string_view key);

/// The key of what was handed out there last, without hidden characters, at most kKeyShownBytes
/// of it; empty where nothing is known. The view leads into the table, whose text may change.
[[nodiscard]] std::string_view key_of_read_only(const void* address) noexcept;

inline constexpr std::size_t kMostReadOnly = 4096;
inline constexpr std::size_t kKeyShownBytes = 120;

}  // namespace tendon::python
