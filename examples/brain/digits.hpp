// SPDX-License-Identifier: Apache-2.0
// The words for the digits that the brain knows.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace brain {

inline constexpr std::uint32_t kDigits = 10;
inline constexpr std::array<std::string_view, kDigits> kWords = {
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"};

}  // namespace brain
