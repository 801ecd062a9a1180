// SPDX-License-Identifier: Apache-2.0
// Prints the lines of DriverSequences on the driver that is named, else libcuda.so.1.
#include "support/cuda/driver_sequences.hpp"

#include <cstdio>

#include "gpu/driver_of.hpp"

int main(int argument_count, char** arguments) {
  const auto driver = tendon::test::driver_of(argument_count, arguments);
  if (!driver) return 1;
  tendon::test::DriverSequences(*driver, [](const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
  }).run();
  return 0;
}
