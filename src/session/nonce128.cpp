// SPDX-License-Identifier: Apache-2.0
#include "session/nonce128.hpp"

#include <sys/random.h>

#include <cerrno>

namespace tendon::v0::detail {

Result<Nonce128> random_nonce() {
  Nonce128 token{};
  do {
    // Requests of up to 256 bytes are never cut short (getrandom(2)), only refused or interrupted.
    while (getrandom(token.data(), token.size(), 0) < 0) {
      if (errno != EINTR) return system_error("session.random", "getrandom(16 bytes)", errno);
    }
  } while (is_none(token));
  return token;
}

}  // namespace tendon::v0::detail
