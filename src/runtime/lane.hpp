// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tendon::v0::detail {

/// What a connection of a link is for.
enum class Lane : std::uint8_t { control = 0, bulk = 1 };

}  // namespace tendon::v0::detail
