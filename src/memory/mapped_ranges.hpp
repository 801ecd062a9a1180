// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tendon/core/export.hpp>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Where segments are mapped, so that a forked child, to which none of them is passed on, can say
/// what an access to one of them was.
///
/// Owns:    a table of the process with kMostMappedRanges places. What finds none is not in it.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never. was_lost_by_fork() may be called in a signal handler.
/// Cost:    a walk over the table.
void note_mapped(const void* begin, std::size_t size_bytes) noexcept;
void note_unmapped(const void* begin) noexcept;

/// Did a segment lie there in the process from which this one was forked, or in its parents?
[[nodiscard]] TENDON_API bool was_lost_by_fork(const void* address) noexcept;

inline constexpr std::size_t kMostMappedRanges = 4096;

}  // namespace tendon::v0::detail
