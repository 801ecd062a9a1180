// SPDX-License-Identifier: Apache-2.0
#include "secure/openssl.hpp"

#include <openssl/err.h>

namespace tendon::v0::detail::secure {

OSSL_LIB_CTX* library_context() {
  // Never freed: handshakes of other threads may last longer than static objects.
  static OSSL_LIB_CTX* const made = OSSL_LIB_CTX_new();
  return made;
}

std::string take_openssl_errors() {
  std::string all;
  while (const unsigned long code = ERR_get_error()) {
    const char* reason = ERR_reason_error_string(code);
    if (!all.empty()) all += ", ";
    all += reason == nullptr ? "error " + std::to_string(ERR_GET_REASON(code)) : reason;
  }
  return all.empty() ? "no reason" : all;
}

}  // namespace tendon::v0::detail::secure
