// SPDX-License-Identifier: Apache-2.0
// A bare number has no unit: is 5 seconds or milliseconds?
// expect: could not convert
// expect: no viable conversion
#include <chrono>
#include <tendon/core/deadline.hpp>

tendon::Deadline use() {
#ifdef TENDON_MUST_COMPILE
  return std::chrono::milliseconds(5);
#else
  return 5;
#endif
}
