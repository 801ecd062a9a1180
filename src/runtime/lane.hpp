// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tendon::v0::detail {

/// The use of one connection of a link.
enum class Lane : std::uint8_t { control = 0, bulk = 1 };

}  // namespace tendon::v0::detail
