// SPDX-License-Identifier: Apache-2.0
#include "session/token.hpp"

#include <sys/random.h>

#include <cerrno>

namespace tendon::v0::detail {

std::string to_hex(Bytes bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

Result<Token> random_token() {
  Token token{};
  do {
    // Requests of up to 256 bytes are never cut short (getrandom(2)), only refused or interrupted.
    while (getrandom(token.data(), token.size(), 0) < 0) {
      if (errno != EINTR) return system_error("session.random", "getrandom(16 bytes)", errno);
    }
  } while (is_none(token));
  return token;
}

}  // namespace tendon::v0::detail
