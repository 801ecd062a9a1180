// SPDX-License-Identifier: Apache-2.0
// Nodes of one process with the GPUs of the double, and samples that lie on them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {

/// Programs with publishers and subscribers of `camera`.
class GpuNodesTest : public NodesTest, protected ProgramGpus {
 protected:
  GpuNodesTest() { wait_for_device_thread(); }

  [[nodiscard]] TensorDict on_gpu_batch(std::uint64_t seed, std::uint64_t size,
                                        Device device = kGpu0) {
    TensorDict batch = patterned(seed, size);
    batch.set("x", on_gpu(batch["x"], device));
    return batch;
  }
  /// Expects this batch, on this device.
  testing::AssertionResult is_there(const Result<Sample>& sample, std::uint64_t seed,
                                    std::uint64_t size, Device device = kGpu0) {
    if (!sample) return testing::AssertionFailure() << sample.error().message();
    if (!sample->tensors) return testing::AssertionFailure() << "it has no tensors";
    TensorDict batch = *sample->tensors;
    const Device where = batch["x"].device();
    if (where != device) return testing::AssertionFailure() << "it lies on " << where;
    if (device != cpu()) batch.set("x", read(batch["x"]));
    return is_patterned(batch, seed, size);
  }
  [[nodiscard]] static Publisher publisher_of(Program& program, PublisherOptions options = {}) {
    return Publisher::declare(program.node, "camera", std::move(options)).value();
  }
  [[nodiscard]] static Subscriber subscriber_of(Program& program, SubscriberOptions options = {}) {
    Subscriber subscriber = Subscriber::declare(program.node, "camera", std::move(options)).value();
    EXPECT_TRUE(succeeds(subscriber.wait_for_publishers(1, kPatience)));
    return subscriber;
  }
};

}  // namespace tendon::test
