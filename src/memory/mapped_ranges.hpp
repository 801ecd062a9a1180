// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tendon/core/export.hpp>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Notes the addresses of segments, so that a process that dies of an access to one can say so: a
/// forked child, which inherits none, and a writer to a read-only one.
///
/// Owns:    a table of the process with kMostMappedRanges places. Segments beyond that are not in
///          it.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never. The two questions may be asked in a signal handler.
/// Cost:    a walk over the table.
void note_mapped(const void* begin, std::size_t size_bytes) noexcept;
void note_unmapped(const void* begin) noexcept;

/// True if a segment lay there in the process from which this one was forked, or in its parents.
[[nodiscard]] TENDON_API bool was_lost_by_fork(const void* address) noexcept;
/// True if a segment of this process lies there now.
[[nodiscard]] TENDON_API bool is_mapped(const void* address) noexcept;

inline constexpr std::size_t kMostMappedRanges = 4096;

}  // namespace tendon::v0::detail
