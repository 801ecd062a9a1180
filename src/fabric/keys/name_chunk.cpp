// SPDX-License-Identifier: Apache-2.0
#include "fabric/keys/name_chunk.hpp"

#include "core/text.hpp"
#include "tensor/text.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::string_view kWhere = "fabric.name";
constexpr std::string_view kEscaped = "%/*$#?";
constexpr std::string_view kDigits = "0123456789ABCDEF";

Error bad_name(std::string_view name, std::string_view why) {
  return Error{ErrorCode::invalid_argument, kWhere,
               "the name " + quote_text(name) + " " + std::string(why)};
}

Result<void> check_size(std::string_view name, std::size_t chunk_bytes) {
  if (chunk_bytes <= kMaxNameChunkBytes) return {};
  return Error{ErrorCode::limit_exceeded, kWhere,
               "the name " + quote_text(name) + " has " + std::to_string(chunk_bytes) +
                   " bytes, each of " + std::string(kEscaped) + " counted as 3; legal: 1-" +
                   std::to_string(kMaxNameChunkBytes)};
}

}  // namespace

Result<std::string> name_to_chunk(std::string_view name) {
  if (name.empty()) return bad_name(name, "is empty");
  if (!is_clean(name)) {
    return bad_name(name, "is not UTF-8, or has control or hidden characters");
  }
  std::string chunk;
  for (const char c : name) {
    if (kEscaped.find(c) == std::string_view::npos && !(c == '@' && chunk.empty())) {
      chunk += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    chunk += '%';
    chunk += kDigits[byte >> 4];
    chunk += kDigits[byte & 15];
  }
  TENDON_CHECK(check_size(name, chunk.size()));
  return chunk;
}

Result<std::string> name_from_chunk(std::string_view chunk) {
  TENDON_CHECK(check_size(chunk, chunk.size()));
  std::string name;
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    if (chunk[i] != '%') {
      name += chunk[i];
      continue;
    }
    const std::string_view digits = chunk.substr(i + 1).substr(0, 2);
    const std::size_t high = digits.empty() ? std::string_view::npos : kDigits.find(digits[0]);
    const std::size_t low = digits.size() < 2 ? std::string_view::npos : kDigits.find(digits[1]);
    if (high == std::string_view::npos || low == std::string_view::npos) {
      return bad_name(chunk, "has a '%' without two digits of 0-9 and A-F behind it");
    }
    name += static_cast<char>(high << 4 | low);
    i += 2;
  }
  TENDON_TRY(spelling, name_to_chunk(name));
  if (spelling != chunk) return bad_name(chunk, "is spelt '" + spelling + "' in a key");
  return name;
}

}  // namespace tendon::v0::detail
