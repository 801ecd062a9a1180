// SPDX-License-Identifier: Apache-2.0
// The double answers as tests/gpu/driver_sequences.txt says; tools/gpu_check.sh asks a driver.
#include "support/cuda/driver_sequences.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "cuda/driver.hpp"
#include "support/cuda/loaded_double.hpp"

namespace tendon::test {
namespace {

std::vector<std::string> expected_lines() {
  std::ifstream file(TENDON_DRIVER_SEQUENCES);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(DriverSequences, TheDoubleAnswersWhatADriverIsToAnswer) {
  const CudaDouble fake;
  const auto driver = cuda::Driver::load(TENDON_CUDA_DOUBLE).value();
  std::vector<std::string> lines;
  DriverSequences(driver->table(), [&](const std::string& line) { lines.push_back(line); }).run();
  EXPECT_EQ(lines, expected_lines());
}

}  // namespace
}  // namespace tendon::test
