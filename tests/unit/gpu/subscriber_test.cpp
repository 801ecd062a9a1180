// SPDX-License-Identifier: Apache-2.0
// Samples of host memory that a subscriber wants on a GPU, on the double of the driver.
#include <gtest/gtest.h>

#include <cstdint>
#include <tendon/fabric/node.hpp>

#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class GpuSubscriber : public GpuPipeTest {
 protected:
  struct Ends {
    Context context;
    Node node;
    Publisher publisher;
    Subscriber subscriber;
  };
  [[nodiscard]] Ends declare(ContextOptions options = {}) {
    Context context = Context::create(with_way(std::move(options), way())).value();
    Node node = Node::join(context,
                           {.domain = "gpu",
                            .name = "robot",
                            .peers = std::vector<std::string>{},
                            .listen = "127.0.0.1:0"},
                           kPatience)
                    .value();
    Publisher publisher = Publisher::declare(node, "camera").value();
    Subscriber subscriber = Subscriber::declare(node, "camera").value();
    EXPECT_TRUE(succeeds(subscriber.wait_for_publishers(1, kPatience)));
    return {std::move(context), std::move(node), std::move(publisher), std::move(subscriber)};
  }
};
TENDON_ON_BOTH_PATHS(GpuSubscriber);

TEST_P(GpuSubscriber, TakesSamplesToItsGpu) {
  Ends ends = declare();
  for (const std::uint64_t size : {100u, 1'000'000u}) {
    ASSERT_TRUE(succeeds(ends.publisher.publish(patterned(size, size), kPatience)));
    const auto sample = ends.subscriber.recv({.device = kGpu1}, kPatience);
    ASSERT_TRUE(succeeds(sample));
    ASSERT_TRUE(sample->tensors.has_value());
    const Tensor x = (*sample->tensors)["x"];
    ASSERT_EQ(x.device(), kGpu1);
    EXPECT_TRUE(has_pattern(read(x).bytes(), size));
  }
  ASSERT_TRUE(succeeds(ends.publisher.publish(numbered(3), kPatience)));
  const auto here = ends.subscriber.recv({.device = cpu()}, kPatience);
  ASSERT_TRUE(succeeds(here));
  EXPECT_EQ(number_of(*here->tensors), 3);
}

TEST_P(GpuSubscriber, WhatCannotBeHadLeavesTheSample) {
  Ends ends = declare({.device_cap_bytes = 4u << 20});
  ASSERT_TRUE(succeeds(ends.publisher.publish(patterned(1, 8u << 20), kPatience)));
  ASSERT_TRUE(succeeds(ends.publisher.publish(patterned(2, 100), kPatience)));
  EXPECT_TRUE(fails_with(ends.subscriber.recv({.device = Device{DeviceKind::cuda, 7}}, kPatience),
                         ErrorCode::unsupported_device, "cuda:7"));
  EXPECT_TRUE(fails_with(ends.subscriber.recv({.device = Device{DeviceKind::rocm, 0}}, kPatience),
                         ErrorCode::unsupported_device, "rocm:0"));
  EXPECT_TRUE(fails_with(ends.subscriber.recv({.device = kGpu0}, kPatience),
                         ErrorCode::message_too_large, "device_cap_bytes"));
  const auto first = ends.subscriber.recv(kPatience);
  ASSERT_TRUE(succeeds(first));
  EXPECT_TRUE(is_patterned(*first->tensors, 1, 8u << 20));
  auto second = ends.subscriber.recv({.device = kGpu0}, kPatience);
  ASSERT_TRUE(succeeds(second));
  EXPECT_TRUE(has_pattern(read((*second->tensors)["x"]).bytes(), 2));
  // A sample that is returned keeps its place.
  ends.subscriber.give_back(*second);
  EXPECT_TRUE(fails_with(ends.subscriber.recv({.device = cpu()}, kPatience),
                         ErrorCode::unsupported_device, "cuda:0"));
  EXPECT_TRUE(succeeds(ends.subscriber.recv({.device = kGpu0}, kPatience)));
}

}  // namespace
}  // namespace tendon::test
