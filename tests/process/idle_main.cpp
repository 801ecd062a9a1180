// SPDX-License-Identifier: Apache-2.0
// A minimal program: one Context that has nothing to do. It waits until its standard input ends.
#include <unistd.h>

#include <tendon/tendon.hpp>

int main() {
  auto context = tendon::Context::create({});
  if (!context) return 1;
  (void)!write(STDOUT_FILENO, "ready\n", 6);
  char byte;
  return read(STDIN_FILENO, &byte, 1) == 0 ? 0 : 2;
}
