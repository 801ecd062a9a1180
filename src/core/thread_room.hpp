// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

#include "core/thread.hpp"

namespace tendon::v0::detail {

/// Checks that so many threads can start now, before a foreign library starts its own and ends the
/// process if it gets none. They are started together and ended. Another thread or process may take
/// the room before it is used, so this makes such an end rare, and does not rule it out.
///
/// Owns:    nothing once it has returned.
/// Threads: safe everywhere.
/// Errors:  resource_exhausted, as Thread::start().
/// Blocks:  for their starts and ends.
/// Cost:    some 20 us for each thread.
[[nodiscard]] TENDON_API Result<void> check_room_for_threads(std::size_t count,
                                                             const ThreadRole& role);

}  // namespace tendon::v0::detail
