// SPDX-License-Identifier: Apache-2.0
// Samples that lie on a GPU and travel through host memory, on the double of the driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <tendon/session/limits.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "channel/gpu_offer.hpp"
#include "support/storage_on_gpu.hpp"
#include "unit/gpu/gpu_nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kLarge = 300'000;  // lies in a slot

class GpuPublisher : public GpuNodesTest {
 protected:
  Program& start(const std::string& name, ContextOptions options = {}) {
    options.device_path = DevicePath::staged;
    return NodesTest::start(name, std::move(options));
  }
  /// The link of a program to the one of that name.
  [[nodiscard]] static std::shared_ptr<detail::Link> link_to(const Program& program,
                                                             const std::string& name) {
    for (const auto& link : *detail::ContextCore::of(program.context)->links().all())
      if (link->peer().name == name) return link;
    ADD_FAILURE() << "no link to " << name;
    return nullptr;
  }
  /// Registers this many unknown GPUs at the link, which take its first numbers.
  static void offer_others(detail::Link& link, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      cuda::Uuid other{};
      other.bytes.front() = 0xab;
      other.bytes.back() = static_cast<unsigned char>(i);
      EXPECT_TRUE(succeeds(detail::offer_gpu(link, other, "test")));
    }
  }
};
TENDON_ON_BOTH_PATHS(GpuPublisher);

// Where samples arrive

TEST_P(GpuPublisher, WhatMayNotBeStagedIsNotPublished) {
  Program& robot = NodesTest::start("robot", {.device_path = DevicePath::direct_only});
  Program& planner = start("planner");
  Publisher publisher = publisher_of(robot);
  Subscriber subscriber = subscriber_of(planner);
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  const auto published = publisher.publish(on_gpu_batch(1, 100), kPatience);
  if (!GetParam().is_shm()) {
    EXPECT_TRUE(fails_with(published, ErrorCode::not_direct, "camera"));
  } else {
    EXPECT_TRUE(succeeds(published));
    EXPECT_TRUE(is_there(subscriber.recv(kPatience), 1, 100, kGpu0));
  }
  EXPECT_EQ(publisher.stats().copies_d2h, 0u);
  EXPECT_TRUE(succeeds(publisher.publish(patterned(1, 100))));
  const auto sample = subscriber.recv(kPatience);
  ASSERT_TRUE(succeeds(sample));
  EXPECT_EQ(sample->sequence, publisher.stats().published);
}

TEST_P(GpuPublisher, EachSubscriberHasTheSampleOnTheSameGpu) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot);
  Subscriber beside = subscriber_of(robot);
  Subscriber far = subscriber_of(planner);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(2, kPatience)));
  std::uint64_t bytes = 0;
  for (const Device device : {kGpu0, kGpu1}) {
    for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{4096}, kLarge}) {
      const auto published = camera.publish(on_gpu_batch(size, size, device), kPatience);
      ASSERT_TRUE(succeeds(published));
      EXPECT_EQ(published->shown, 2u);
      bytes += size;
      for (Subscriber* const subscriber : {&beside, &far}) {
        const auto sample = subscriber->recv(kPatience);
        ASSERT_TRUE(is_there(sample, size, size, device));
        EXPECT_EQ(sample->sequence, published->sequence);
        EXPECT_TRUE(sample->gaps.empty());
        EXPECT_EQ((*sample->tensors)["x"].storage().access(), Access::read_write);
      }
    }
  }
  EXPECT_EQ(camera.stats().copies_d2h, 6u);
  EXPECT_EQ(camera.stats().bytes_d2h, bytes);
  EXPECT_EQ(far.stats().copies_h2d, 6u);
  EXPECT_EQ(far.stats().bytes_h2d, bytes);
}

TEST_P(GpuPublisher, OneCopyServesAllSubscribers) {
  Program& robot = start("robot");
  Publisher camera = publisher_of(robot);
  Subscriber first = subscriber_of(robot);
  Subscriber second = subscriber_of(robot);
  const TensorDict batch = on_gpu_batch(1, kLarge);
  const std::uint64_t before = fake.calls("cuMemcpyAsync");
  ASSERT_TRUE(succeeds(camera.publish(batch)));
  EXPECT_EQ(fake.calls("cuMemcpyAsync") - before, 1u);
  EXPECT_TRUE(is_there(first.recv({.device = cpu()}, kPatience), 1, kLarge, cpu()));
  EXPECT_TRUE(is_there(second.recv({.device = kGpu1}, kPatience), 1, kLarge, kGpu1));
  EXPECT_EQ(fake.calls("cuMemcpyAsync") - before, 2u);
}

TEST_P(GpuPublisher, LeavesAndValuesOfHostMemoryStayThere) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(planner);
  for (const std::uint64_t size : {std::uint64_t{10}, kLarge}) {
    TensorDict batch = on_gpu_batch(size, size);
    batch.set("state/joints", Tensor::of<double>({2}, {1.5, -0.0}));
    batch.set("info/name", "a/b");
    ASSERT_TRUE(succeeds(camera.publish(batch, kPatience)));
    const auto sample = frames.recv(kPatience);
    ASSERT_TRUE(succeeds(sample));
    const TensorDict& arrived = *sample->tensors;
    EXPECT_EQ(*arrived.schema(), *batch.schema());
    EXPECT_EQ(arrived.value("info/name").as_string(), "a/b");
    EXPECT_EQ(arrived["state/joints"].device(), cpu());
    EXPECT_TRUE(bitwise_equal(arrived["state/joints"], batch["state/joints"]));
    ASSERT_EQ(arrived["x"].device(), kGpu0);
    EXPECT_TRUE(has_pattern(read(arrived["x"]).bytes(), size));
  }
}

TEST_P(GpuPublisher, OneSchemaInThreePlacesIsThreeAnnouncements) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(planner);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(succeeds(camera.publish(patterned(1, 100), kPatience)));
    EXPECT_TRUE(is_there(frames.recv(kPatience), 1, 100, cpu()));
    for (const Device device : {kGpu0, kGpu1}) {
      ASSERT_TRUE(succeeds(camera.publish(on_gpu_batch(1, 100, device), kPatience)));
      EXPECT_TRUE(is_there(frames.recv(kPatience), 1, 100, device));
    }
  }
  // A loan has no memory on a GPU.
  Loan loan = camera.loan(bytes_schema(100)).value();
  fill_pattern(loan["x"].mutable_bytes(), 7);
  ASSERT_TRUE(succeeds(camera.publish(std::move(loan), kPatience)));
  EXPECT_TRUE(is_there(frames.recv(kPatience), 7, 100, cpu()));
}

TEST_P(GpuPublisher, TwoLinksCountTheGpusApart) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Program& logger = start("logger");
  Publisher camera = publisher_of(robot);
  Subscriber first = subscriber_of(planner);
  Subscriber second = subscriber_of(logger);
  // On one link the first GPU then has number 2, on the other 0.
  offer_others(*link_to(robot, "planner"), 2);
  for (const std::uint64_t size : {std::uint64_t{100}, kLarge}) {
    for (const Device device : {kGpu1, kGpu0}) {
      ASSERT_TRUE(succeeds(camera.publish(on_gpu_batch(3, size, device), kPatience)));
      EXPECT_TRUE(is_there(first.recv(kPatience), 3, size, device));
      EXPECT_TRUE(is_there(second.recv(kPatience), 3, size, device));
    }
  }
  const cuda::Uuid uuid = program.gpu(1)->context()->uuid();
  EXPECT_EQ(detail::offer_gpu(*link_to(robot, "planner"), uuid, "test").value(), 2u);
  EXPECT_EQ(detail::offer_gpu(*link_to(robot, "logger"), uuid, "test").value(), 0u);
}

TEST_P(GpuPublisher, ALateSubscriberHasItFromTheHistory) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot, {.qos = {.history = keep_last(3)}});
  for (std::uint64_t i = 1; i <= 4; ++i) {
    const bool is_on_gpu = i % 2 == 0;
    ASSERT_TRUE(succeeds(
        camera.publish(is_on_gpu ? on_gpu_batch(i, kLarge) : patterned(i, kLarge), kPatience)));
  }
  Subscriber frames = subscriber_of(planner);
  for (std::uint64_t i = 2; i <= 4; ++i) {
    const auto sample = frames.recv(kPatience);
    EXPECT_TRUE(is_there(sample, i, kLarge, i % 2 == 0 ? kGpu0 : cpu()));
    EXPECT_EQ(sample->sequence, i);
  }
}

TEST_P(GpuPublisher, ASubscriberThatIsBehindMissesExactlyThese) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(planner, {.window = 2});
  for (std::uint64_t i = 1; i <= 6; ++i)
    ASSERT_TRUE(succeeds(camera.publish(on_gpu_batch(i, kLarge), kPatience)));
  std::uint64_t received = 0;
  std::uint64_t missed = 0;
  for (std::uint64_t last = 0; last < 6; ++received) {
    const auto sample = frames.recv(kPatience);
    ASSERT_TRUE(succeeds(sample));
    last = sample->sequence;
    EXPECT_TRUE(is_there(sample, last, kLarge));
    missed += missing_in(*sample);
  }
  EXPECT_EQ(received + missed, 6u);
  EXPECT_GE(missed, 1u);
}

// Streams

TEST_P(GpuPublisher, ASampleIsReadBehindTheWorkOfItsStreamAndShownWhenItIsCopied) {
  Program& robot = start("robot");
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(robot);
  const auto stream = make_stream();
  TensorDict batch = on_gpu_batch(1, kLarge);
  Gate gate(fake, stream);
  struct Rewrite {
    const CudaDouble& fake;
    std::uint64_t address;
  } rewrite{fake, reinterpret_cast<std::uint64_t>(batch["x"].data())};
  ASSERT_EQ(fake.launch(
                stream,
                [](void* argument) {
                  const auto& what = *static_cast<Rewrite*>(argument);
                  auto* const bytes =
                      static_cast<std::byte*>(what.fake.writes(what.address, kLarge));
                  fill_pattern({bytes, kLarge}, 2);
                },
                &rewrite),
            0);
  // There is no deadline, and the publish waits for the GPU, but not for a subscriber.
  std::thread publishing([&] { EXPECT_TRUE(succeeds(camera.publish(batch, {.stream = stream}))); });
  EXPECT_TRUE(fails_with(frames.recv(20ms), ErrorCode::timeout));
  // Samples of others continue meanwhile.
  ASSERT_TRUE(succeeds(camera.publish(numbered(3), kPatience)));
  EXPECT_EQ(number_of(*receive(frames).tensors), 3);
  gate.open();
  const auto sample = frames.recv(kPatience);
  publishing.join();
  EXPECT_TRUE(is_there(sample, 2, kLarge));
  EXPECT_EQ(sample->sequence, 2u);
}

TEST_P(GpuPublisher, APublishWhoseStreamIsStuckTimesOutAndPublishesNothing) {
  Program& robot = start("robot");
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(robot);
  const auto stream = make_stream();
  for (const std::uint64_t size : {std::uint64_t{100}, kLarge}) {
    const std::uint64_t published = camera.stats().published;
    const Gate gate(fake, stream);
    EXPECT_TRUE(fails_with(camera.publish(on_gpu_batch(1, size), 20ms, {.stream = stream}),
                           ErrorCode::timeout, "nothing was published"));
    EXPECT_EQ(camera.stats().published, published);
    ASSERT_TRUE(succeeds(camera.publish(on_gpu_batch(2, size), kPatience)));
    const auto sample = frames.recv(kPatience);
    EXPECT_TRUE(is_there(sample, 2, size));
    EXPECT_TRUE(sample->gaps.empty());
  }
  EXPECT_EQ(camera.stats().copies_d2h, 2u);
}

TEST_P(GpuPublisher, AStreamThatIsCapturedIsRefusedBeforeAnythingIsDone) {
  Program& robot = start("robot");
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(robot);
  const auto stream = make_stream();
  const TensorDict batch = on_gpu_batch(1, kLarge);
  ASSERT_TRUE(succeeds(camera.publish(batch, kPatience)));
  {
    const cuda::PrimaryContext::Current current(*program.gpu(0)->context());
    ASSERT_EQ(fake.begin_capture(stream, 2), 0);
  }
  const std::uint64_t before = fake.calls("cuMemcpyAsync");
  EXPECT_TRUE(fails_with(camera.publish(batch, kPatience, {.stream = stream}),
                         ErrorCode::invalid_argument, "captur"));
  EXPECT_TRUE(fails_with(frames.recv({.stream = stream}, kPatience), ErrorCode::invalid_argument,
                         "captur"));
  EXPECT_EQ(fake.calls("cuMemcpyAsync"), before);
  {
    const cuda::PrimaryContext::Current current(*program.gpu(0)->context());
    std::size_t captured = 1;
    EXPECT_EQ(fake.end_capture(stream, &captured), 0);
    EXPECT_EQ(captured, 0u);
  }
  EXPECT_EQ(camera.stats().published, 1u);
  const auto sample = frames.recv({.stream = stream}, kPatience);
  synchronize(kGpu0, stream);
  EXPECT_TRUE(is_there(sample, 1, kLarge));
}

// Samples that cannot be published or received

TEST_P(GpuPublisher, LeavesOfTwoGpusAndLeavesWithGapsAreRefused) {
  Program& robot = start("robot");
  Publisher camera = publisher_of(robot);
  TensorDict two = on_gpu_batch(1, 100);
  two.set("y", on_gpu(Tensor::of<float>({2}, {1, 2}), kGpu1));
  const auto refused = camera.publish(two, kPatience);
  EXPECT_TRUE(fails_with(refused, ErrorCode::unsupported_device, "cuda:0"));
  EXPECT_TRUE(fails_with(refused, ErrorCode::unsupported_device, "cuda:1"));
  TensorDict gaps;
  gaps.set("x", on_gpu(Tensor::of<float>({2, 2}, {1, 2, 3, 4})).transpose(0, 1).value());
  EXPECT_TRUE(fails_with(camera.publish(gaps, kPatience), ErrorCode::not_contiguous, "'x'"));
  TensorDict other;
  other.set("x", Tensor::view(storage_on_gpu(8, {DeviceKind::rocm, 0}), 0, DType::u8, {8}).value());
  EXPECT_TRUE(fails_with(camera.publish(other, kPatience), ErrorCode::unsupported_device, "rocm"));
  EXPECT_EQ(camera.stats().published, 0u);
}

TEST_P(GpuPublisher, ASampleThatCannotBeHadThereStaysForAnotherPlace) {
  Program& robot = start("robot", {.device_cap_bytes = 4u << 20});
  Publisher camera = publisher_of(robot, {.qos = {.history = keep_last(4)}});
  Subscriber frames = subscriber_of(robot);
  constexpr std::uint64_t kTooMuch = 5u << 20;
  ASSERT_TRUE(succeeds(camera.publish(on_gpu_batch(1, kTooMuch), kPatience)));
  ASSERT_TRUE(succeeds(camera.publish(on_gpu_batch(2, 100), kPatience)));
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(fails_with(frames.recv(kPatience), ErrorCode::message_too_large, "device_cap"));
  EXPECT_TRUE(fails_with(frames.recv_async().wait(kPatience), ErrorCode::unsupported_device,
                         "take it with recv()"));
  auto first = frames.recv({.device = cpu()}, kPatience);
  EXPECT_TRUE(is_there(first, 1, kTooMuch, cpu()));
  // A sample that was returned before another one failed is the next.
  frames.give_back(*std::move(first));
  EXPECT_EQ(receive(frames).sequence, 1u);
  EXPECT_TRUE(is_there(frames.recv(kPatience), 2, 100));
  EXPECT_EQ(frames.stats().received, 2u);
}

TEST_P(GpuPublisher, ASubscriberThatTakesNoGpusMissesSuchSamplesAlone) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  const Told told(robot.node);
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(planner);
  ASSERT_TRUE(succeeds(camera.publish(numbered(9), kPatience)));
  EXPECT_EQ(number_of(*receive(frames).tensors), 9);
  offer_others(*link_to(robot, "planner"), kMaxDevicesPerLink);
  for (std::uint64_t i = 1; i <= 2; ++i) {
    const auto published = camera.publish(on_gpu_batch(i, kLarge), kPatience);
    ASSERT_TRUE(succeeds(published));
    EXPECT_EQ(published->shown, 0u);
    EXPECT_TRUE(published->lagging.empty());
  }
  ASSERT_TRUE(succeeds(camera.publish(patterned(3, kLarge), kPatience)));
  const auto sample = frames.recv(kPatience);
  EXPECT_TRUE(is_there(sample, 3, kLarge, cpu()));
  EXPECT_EQ(missing_in(*sample), 2u);
  // Events are delivered in order: after two later events, every earlier one has been delivered.
  for (const std::size_t count : {1u, 2u}) {
    const Subscriber other = subscriber_of(robot);
    ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::came).size() >= count; }));
  }
  const auto events = told.of(FabricEventKind::not_taken);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events.front().key, "camera");
  EXPECT_NE(events.front().node.find("planner"), std::string::npos) << events.front().node;
  EXPECT_NE(events.front().reason.find("kMaxDevicesPerLink"), std::string::npos);
}

TEST_P(GpuPublisher, OnSampleGetsHostMemory) {
  Program& robot = start("robot");
  Publisher camera = publisher_of(robot);
  std::atomic<int> right{0};
  Subscriber frames = subscriber_of(robot, {.on_sample = [&](const Sample& sample) {
                                      right += is_there(sample, 5, kLarge, cpu()) ? 1 : 0;
                                    }});
  ASSERT_TRUE(succeeds(camera.publish(on_gpu_batch(5, kLarge), kPatience)));
  EXPECT_TRUE(eventually([&] { return right.load() == 1; }));
  frames.close();
}

TEST_P(GpuPublisher, ManyThreadsPublishAtOnce) {
  Program& robot = start("robot");
  Publisher camera = publisher_of(robot, {.qos = {.history = keep_last(64)}});
  Subscriber frames = subscriber_of(robot, {.window = 64});
  std::vector<TensorDict> batches;
  for (std::uint64_t i = 0; i < 16; ++i) batches.push_back(on_gpu_batch(i, 20'000));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = t; i < batches.size(); i += 4)
        EXPECT_TRUE(succeeds(camera.publish(batches[i], kPatience)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<bool> seen(batches.size());
  for (std::uint64_t n = 1; n <= batches.size(); ++n) {
    const auto sample = frames.recv(kPatience);
    ASSERT_TRUE(succeeds(sample));
    EXPECT_EQ(sample->sequence, n);
    const Tensor x = read((*sample->tensors)["x"]);
    for (std::size_t i = 0; i < batches.size(); ++i)
      if (has_pattern(x.bytes(), i)) seen[i] = true;
  }
  EXPECT_EQ(std::ranges::count(seen, true), 16);
}

}  // namespace
}  // namespace tendon::test
