// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/err.h>

#include <tendon/core/version.hpp>

namespace tendon::v0::detail::secure {

/// Each thread has one queue of errors of libcrypto, which belongs to the program: what our calls in
/// this scope add to it leaves with the scope.
class ErrorQueueScope {
 public:
  ErrorQueueScope() { ERR_set_mark(); }
  ~ErrorQueueScope() { ERR_pop_to_mark(); }
  ErrorQueueScope(const ErrorQueueScope&) = delete;
  ErrorQueueScope& operator=(const ErrorQueueScope&) = delete;
};

}  // namespace tendon::v0::detail::secure
