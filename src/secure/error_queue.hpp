// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/err.h>

#include <tendon/core/version.hpp>

namespace tendon::v0::detail::secure {

/// The queue of errors that libcrypto has for each thread belongs to the program: what our calls in
/// this scope add to it leaves with the scope.
class ErrorQueueScope {
 public:
  ErrorQueueScope() { ERR_set_mark(); }
  ~ErrorQueueScope() { ERR_pop_to_mark(); }
  ErrorQueueScope(const ErrorQueueScope&) = delete;
  ErrorQueueScope& operator=(const ErrorQueueScope&) = delete;
};

}  // namespace tendon::v0::detail::secure
