// SPDX-License-Identifier: Apache-2.0
// An accessor that hands out an address does not exist on a temporary Result.
// expect: deleted
#include <string>
#include <tendon/core/result.hpp>

tendon::Result<std::string> name();

const char* use() {
#ifdef TENDON_MUST_COMPILE
  static const auto kept = name();
  return kept->c_str();
#else
  return name()->c_str();
#endif
}
