// SPDX-License-Identifier: Apache-2.0
// value() of a temporary Result is a value, never a reference into the temporary: otherwise
// `for (auto& x : f().value())` reads a dead object in C++20.
// expect: cannot bind
#include <tendon/core/result.hpp>
#include <vector>

tendon::Result<std::vector<int>> numbers();

int sum() {
  int total = 0;
  for (int number : numbers().value()) total += number;
#ifdef TENDON_MUST_COMPILE
  std::vector<int>&& first = numbers().value();
#else
  std::vector<int>& first = numbers().value();
#endif
  return total + first.front();
}
