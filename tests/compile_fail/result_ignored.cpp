// SPDX-License-Identifier: Apache-2.0
// A failure cannot be overlooked: a Result that nobody reads is an error.
// expect: unused-result
#include <tendon/core/result.hpp>

tendon::Result<void> connect();

void use() {
#ifdef TENDON_MUST_COMPILE
  connect().value();
#else
  connect();
#endif
}
