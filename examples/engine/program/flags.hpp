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

/// The flags of one of the engine's programs, each with a value behind it, by name.
using Flags = std::map<std::string, std::string, std::less<>>;

// More blocks on a rank than any memory holds, but no sum of them overflows.
inline constexpr std::uint32_t kMaxBlocks = 1U << 24;

/// invalid_argument, for what a user wrote.
[[nodiscard]] tendon::Error wrong_flag(const std::string& text);
/// All that may be given, with what `words` give in place of the defaults.
[[nodiscard]] tendon::Result<Flags> flags_of(Flags defaults, const std::vector<std::string>& words);
/// The whole number of a flag that is among them.
[[nodiscard]] tendon::Result<std::uint32_t> number_of(const Flags& flags, std::string_view name,
                                                      std::uint32_t least, std::uint32_t most);

}  // namespace engine
