// SPDX-License-Identifier: Apache-2.0
// Programs that publish samples which lie on a GPU of the double, and read them there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {

inline constexpr std::uint64_t kFrame = 300'000;

class DirectPublisher : public NodesTest, protected ProgramGpus {
 protected:
  DirectPublisher() { wait_for_device_thread(); }

  [[nodiscard]] TensorDict frame(std::uint64_t seed, std::uint64_t size = kFrame,
                                 Device device = kGpu0) {
    TensorDict batch = patterned(seed, size);
    batch.set("x", on_gpu(batch["x"], device));
    return batch;
  }
  testing::AssertionResult is_frame(const Result<Sample>& sample, std::uint64_t seed,
                                    Device device = kGpu0, std::uint64_t size = kFrame) {
    if (!sample) return testing::AssertionFailure() << sample.error().message();
    TensorDict batch = *sample->tensors;
    if (batch["x"].device() != device)
      return testing::AssertionFailure() << "it lies on " << batch["x"].device();
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
  static std::vector<std::shared_ptr<detail::Link>> links_of(const Program& program) {
    return *detail::ContextCore::of(program.context)->links().all();
  }
  /// Holds of slots in the program's pool of passed memory: of its peers.
  [[nodiscard]] static std::uint64_t held(const Program& program) {
    for (const auto& link : links_of(program)) (void)link->collect_returns();
    const auto stats = detail::ContextCore::of(program.context)->memory().passed->stats();
    return stats.empty() ? 0 : stats.front().second.holds.holds;
  }
  static bool is_view(const Sample& sample) {
    return (*sample.tensors)["x"].storage().access() == Access::read_only;
  }
  /// As one of an older version sees the program of that name.
  static void make_older(const Program& program, const std::string& name) {
    constexpr auto kBit = static_cast<std::uint64_t>(detail::Feature::device_samples);
    for (const auto& link : links_of(program))
      if (link->peer().name == name)
        link->agree(detail::Features(link->features().bits() & ~kBit), link->role());
  }
};

}  // namespace tendon::test
