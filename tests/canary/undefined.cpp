// SPDX-License-Identifier: Apache-2.0
#include <climits>

int main(int argc, char**) {
  const int sum = INT_MAX + argc;
  return sum == 0 ? 1 : 0;
}
