// SPDX-License-Identifier: Apache-2.0
// Programs that publish samples that lie on a GPU of the double, and read them there.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/context_core.hpp"
#include "unit/gpu/gpu_nodes.hpp"

namespace tendon::test {

inline constexpr std::uint64_t kFrame = 300'000;

/// A program with a camera, and one that subscribes to its frames.
struct CameraPrograms {
  Program& robot;
  Program& planner;
  Publisher camera;
  Subscriber frames;
};

class DirectPublisher : public GpuNodesTest {
 protected:
  [[nodiscard]] CameraPrograms start_camera() {
    Program& robot = start("robot");
    Program& planner = start("planner");
    Publisher camera = publisher_of(robot);
    Subscriber frames = subscriber_of(planner);
    EXPECT_TRUE(succeeds(camera.wait_for_subscribers(1, kPatience)));
    return {robot, planner, std::move(camera), std::move(frames)};
  }
  [[nodiscard]] TensorDict frame(std::uint64_t seed, std::uint64_t size = kFrame,
                                 Device device = kGpu0) {
    return on_gpu_batch(seed, size, device);
  }
  testing::AssertionResult is_frame(const Result<Sample>& sample, std::uint64_t seed,
                                    Device device = kGpu0, std::uint64_t size = kFrame) {
    return is_there(sample, seed, size, device);
  }
  static std::vector<std::shared_ptr<detail::Link>> links_of(const Program& program) {
    return *detail::ContextCore::of(program.context)->links().all();
  }
  /// How many holds of slots the peers have in the program's pool of passed memory.
  [[nodiscard]] static std::uint64_t held(const Program& program) {
    for (const auto& link : links_of(program)) (void)link->collect_returns();
    const auto stats = detail::ContextCore::of(program.context)->memory().passed->stats();
    return stats.empty() ? 0 : stats.front().second.holds.holds;
  }
  static bool is_view(const Sample& sample) {
    return (*sample.tensors)["x"].storage().access() == Access::read_only;
  }
  /// Makes the program of that name look like one of an older version.
  static void make_older(const Program& program, const std::string& name) {
    constexpr auto kBit = static_cast<std::uint64_t>(detail::Feature::device_samples);
    for (const auto& link : links_of(program))
      if (link->peer().name == name)
        link->agree(detail::Features(link->features().bits() & ~kBit), link->role());
  }
};

}  // namespace tendon::test
