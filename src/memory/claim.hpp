// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/result.hpp>

#include "memory/segment.hpp"

namespace tendon::v0::detail {

/// Ensures that [offset, offset + size) of a segment has memory, before the first write to it.
/// Error: resource_exhausted, with an errno, if the system has none and the first touch would be
/// SIGBUS. That can happen with strict overcommit; elsewhere this does nothing.
[[nodiscard]] Result<void> claim(const Segment& segment, std::uint64_t offset,
                                 std::uint64_t size_bytes);

}  // namespace tendon::v0::detail
