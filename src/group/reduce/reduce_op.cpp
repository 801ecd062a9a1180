// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <tendon/group/reduce_op.hpp>

namespace tendon::v0 {
namespace {

// Row i names the kind with number i + 1.
constexpr std::array<std::string_view, 9> kNames = {
    "sum", "avg", "product", "min", "max", "bit_and", "bit_or", "bit_xor", "premul_sum"};

}  // namespace

std::string_view to_string(ReduceKind kind) { return kNames[static_cast<std::size_t>(kind) - 1]; }

std::optional<ReduceKind> parse_reduce_kind(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<ReduceKind>(i + 1);
  return std::nullopt;
}

std::optional<ReduceKind> reduce_kind_from_number(std::uint8_t number) {
  if (number == 0 || number > kNames.size()) return std::nullopt;
  return static_cast<ReduceKind>(number);
}

}  // namespace tendon::v0
