// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <tendon/core/version.hpp>

namespace tendon::v0::detail {

/// Whether the kernel has said that the peer's process is dead. Before that it may still read and
/// write the memory that was lent to it.
enum class Death : std::uint8_t { not_proved, proved };

}  // namespace tendon::v0::detail
