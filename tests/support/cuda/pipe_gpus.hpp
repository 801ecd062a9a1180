// SPDX-License-Identifier: Apache-2.0
// Pipes of a process whose GPUs are those of the double, and batches that lie on them.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <utility>

#include "support/cuda/program_gpus.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {

/// Runs before main(): the first use of CUDA reads the variables.
inline const bool kUsesDouble = setenv("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE, 1) == 0 &&
                                setenv("TENDON_CUDA_DOUBLE_DEVICES", "2", 1) == 0;

/// Waits until everything that the previous test released is released. The double waits for all
/// streams to release memory, so the device thread would wait for a gate of this test.
inline void wait_for_device_thread() {
  auto* const thread = cuda::process_device_thread().value();
  EXPECT_TRUE(succeeds(thread->run([] { return Result<void>(); }, kPatience)));
}

/// Runs on every way, with two Contexts of one process that has two GPUs.
class GpuPipeTest : public PipeTest, protected ProgramGpus {
 protected:
  /// Waits until the memory of the previous test is released. The double waits for all streams to
  /// release memory, so the device thread would wait for a gate of this test.
  GpuPipeTest() { EXPECT_TRUE(is_released()); }
  /// True once no memory is left on any GPU.
  [[nodiscard]] bool is_released() {
    return eventually([&] { return fake.calls("cuMemMap") == fake.calls("cuMemUnmap"); });
  }
};

/// The same tests, where tensors travel through host memory on every way.
class StagedGpuPipeTest : public GpuPipeTest {
 protected:
  [[nodiscard]] PipePair connect(ContextOptions client = {}, ContextOptions server = {}) {
    client.device_path = server.device_path = DevicePath::staged;
    return GpuPipeTest::connect(std::move(client), std::move(server));
  }
};

}  // namespace tendon::test
