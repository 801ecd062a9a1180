// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>
#include <tendon/core/result.hpp>
#include <vector>

namespace engine {

/// The flags of one of the engine's programs, by name, each followed by a value.
using Flags = std::map<std::string, std::string, std::less<>>;

// More blocks than any memory holds on a rank, but their sum never overflows.
inline constexpr std::uint32_t kMaxBlocks = 1U << 24;

/// invalid_argument, for a user's mistake.
[[nodiscard]] tendon::Error wrong_flag(const std::string& text);
/// Returns all legal flags, with the values in `words` in place of the defaults.
[[nodiscard]] tendon::Result<Flags> flags_of(Flags defaults, const std::vector<std::string>& words);
/// Returns the whole number of a flag in `flags`.
[[nodiscard]] tendon::Result<std::uint32_t> number_of(const Flags& flags, std::string_view name,
                                                      std::uint32_t least, std::uint32_t most);

}  // namespace engine
