// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tendon/core/export.hpp>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Where segments are mapped, so that a process that dies of an access to one of them can say so:
/// a forked child, to which none is passed on, and a writer to one that may only be read.
///
/// Owns:    a table of the process with kMostMappedRanges places. What finds none is not in it.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never. The two questions may be asked in a signal handler.
/// Cost:    a walk over the table.
void note_mapped(const void* begin, std::size_t size_bytes) noexcept;
void note_unmapped(const void* begin) noexcept;

/// Did a segment lie there in the process from which this one was forked, or in its parents?
[[nodiscard]] TENDON_API bool was_lost_by_fork(const void* address) noexcept;
/// Does a segment of this process lie there now?
[[nodiscard]] TENDON_API bool is_mapped(const void* address) noexcept;

inline constexpr std::size_t kMostMappedRanges = 4096;

}  // namespace tendon::v0::detail
