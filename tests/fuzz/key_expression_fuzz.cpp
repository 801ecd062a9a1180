// SPDX-License-Identifier: Apache-2.0
// Two texts of strangers, with a zero byte between them. Each is refused with a reason or has one
// canonical form, and the answers of two expressions about each other must agree.
#include <cstdint>
#include <optional>
#include <string_view>
#include <tendon/fabric/key_expression.hpp>

#include "require.hpp"

namespace {

using tendon::KeyExpression;

using tendon::test::require;

std::optional<KeyExpression> read(std::string_view text) {
  const auto strict = KeyExpression::parse(text);
  const auto lenient = KeyExpression::canonize(text);
  if (!lenient) {
    require(!strict && !lenient.error().detail.empty());
    return std::nullopt;
  }
  require(lenient->text().size() <= text.size());
  require(KeyExpression::parse(lenient->text()).value() == *lenient);
  require(strict.has_value() == (lenient->text() == text));
  require(lenient->intersects(*lenient) && lenient->includes(*lenient));
  return *lenient;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  const std::string_view input(reinterpret_cast<const char*>(data), size_bytes);
  const std::size_t middle = input.find('\0');
  const auto a = read(input.substr(0, middle));
  if (middle == std::string_view::npos) return 0;
  const auto b = read(input.substr(middle + 1));
  if (!a || !b) return 0;
  const bool meet = a->intersects(*b);
  require(meet == b->intersects(*a));
  require(meet || !(a->includes(*b) || b->includes(*a)));
  require(!(a->includes(*b) && b->includes(*a)) || *a == *b);
  require(!a->is_key() || meet == b->includes(*a));
  return 0;
}
