// SPDX-License-Identifier: Apache-2.0
// Samples that stay on their GPU: one slot that all subscribers read, on the double of the driver.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "channel/direct_views.hpp"
#include "fabric/topics/gpu_samples.hpp"
#include "unit/gpu/direct_publishers.hpp"

namespace tendon::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Paths, DirectPublisher, testing::Values(kShm), way_name);

TEST_P(DirectPublisher, OneCopyOnTheGpuServesAllSubscribers) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Program& logger = start("logger");
  Publisher camera = publisher_of(robot);
  Subscriber first = subscriber_of(planner);
  Subscriber second = subscriber_of(logger);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(2, kPatience)));
  std::uint64_t bytes = 0;
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{4096}, kFrame}) {
    const auto published = camera.publish(frame(size, size), kPatience);
    ASSERT_TRUE(succeeds(published));
    EXPECT_EQ(published->shown, 2u);
    bytes += size;
    for (Subscriber* const subscriber : {&first, &second}) {
      const auto sample = subscriber->recv(kPatience);
      ASSERT_TRUE(is_frame(sample, size, kGpu0, size));
      EXPECT_TRUE(is_view(*sample));
      EXPECT_EQ(sample->sequence, published->sequence);
      EXPECT_TRUE(sample->gaps.empty());
    }
  }
  EXPECT_EQ(camera.stats().copies_d2d, 3u);
  EXPECT_EQ(camera.stats().bytes_d2d, bytes);
  EXPECT_EQ(camera.stats().copies_d2h, 0u);
  EXPECT_EQ(first.stats().copies_h2d + first.stats().copies_d2d, 0u);
}

TEST_P(DirectPublisher, ASlotReturnsWhenTheStreamsOfItsReadersHaveDoneWhatTheyHad) {
  auto [robot, planner, camera, frames] = start_camera();
  ASSERT_TRUE(succeeds(camera.publish(frame(1), kPatience)));
  const auto stream = make_stream();
  auto sample = frames.recv({.stream = stream}, kPatience);
  ASSERT_TRUE(succeeds(sample));
  ASSERT_TRUE(is_view(*sample));
  {
    Gate gate(fake, stream);
    gate.wait_until_reached();
    *sample = Sample();
    EXPECT_EQ(held(robot), 1u) << "kernels may read it";
  }
  EXPECT_TRUE(eventually([&] { return held(robot) == 0; }));
}

TEST_P(DirectPublisher, LeavesAndValuesOfHostMemoryStayThere) {
  auto [robot, planner, camera, frames] = start_camera();
  TensorDict batch = frame(3);
  batch.set("state/joints", Tensor::of<double>({2}, {1.5, -0.0}));
  batch.set("info/name", "a/b");
  ASSERT_TRUE(succeeds(camera.publish(batch, kPatience)));
  const auto sample = frames.recv(kPatience);
  ASSERT_TRUE(succeeds(sample));
  EXPECT_TRUE(is_view(*sample));
  const TensorDict& arrived = *sample->tensors;
  EXPECT_EQ(*arrived.schema(), *batch.schema());
  EXPECT_EQ(arrived.value("info/name").as_string(), "a/b");
  EXPECT_TRUE(bitwise_equal(arrived["state/joints"], batch["state/joints"]));
  EXPECT_TRUE(has_pattern(read(arrived["x"]).bytes(), 3));
  // It has more host memory than travels inline, so the sample is staged.
  batch.set("large", Tensor::empty(DType::u8, {20'000}).value());
  ASSERT_TRUE(succeeds(camera.publish(batch, kPatience)));
  const auto staged = frames.recv(kPatience);
  ASSERT_TRUE(succeeds(staged));
  EXPECT_FALSE(is_view(*staged));
  EXPECT_TRUE(has_pattern(read((*staged->tensors)["x"]).bytes(), 3));
}

TEST_P(DirectPublisher, BeyondEightViewsSamplesAreCopied) {
  auto [robot, planner, camera, frames] = start_camera();
  std::vector<Sample> views;
  for (std::uint64_t i = 0; i < detail::DirectViews::kMost + 2; ++i) {
    ASSERT_TRUE(succeeds(camera.publish(frame(i), kPatience)));
    auto sample = frames.recv(kPatience);
    ASSERT_TRUE(is_frame(sample, i));
    EXPECT_EQ(is_view(*sample), i < detail::DirectViews::kMost);
    views.push_back(*std::move(sample));
  }
  EXPECT_EQ(frames.stats().copies_d2d, 2u);
  EXPECT_EQ(frames.stats().bytes_d2d, 2 * kFrame);
  ASSERT_TRUE(succeeds(camera.publish(frame(50), kPatience)));
  EXPECT_TRUE(fails_with(frames.recv({.device_mode = RecvMode::view_only}, kPatience),
                         ErrorCode::no_credit, "8"));
  views.erase(views.begin());
  EXPECT_TRUE(eventually([&] { return held(robot) == detail::DirectViews::kMost; }));
  const auto sample = frames.recv({.device_mode = RecvMode::view_only}, kPatience);
  EXPECT_TRUE(is_frame(sample, 50));
  ASSERT_TRUE(succeeds(camera.publish(frame(51), kPatience)));
  views.clear();
  const auto copied = frames.recv({.device_mode = RecvMode::copy}, kPatience);
  EXPECT_TRUE(is_frame(copied, 51));
  EXPECT_FALSE(is_view(*copied));
}

TEST_P(DirectPublisher, ItArrivesWhereItIsWanted) {
  auto [robot, planner, camera, frames] = start_camera();
  for (const Device device : {cpu(), kGpu1, kGpu0}) {
    ASSERT_TRUE(succeeds(camera.publish(frame(4), kPatience)));
    EXPECT_TRUE(fails_with(frames.recv_async().wait(kPatience), ErrorCode::unsupported_device,
                           "take it with recv()"));
    EXPECT_TRUE(is_frame(frames.recv({.device = device}, kPatience), 4, device));
  }
  EXPECT_EQ(camera.stats().copies_d2h, 0u);
  EXPECT_EQ(frames.stats().copies_d2h, 2u);
  EXPECT_EQ(frames.stats().copies_h2d, 1u);
  EXPECT_TRUE(eventually([&] { return held(robot) == 0; }));
}

TEST_P(DirectPublisher, OnSampleGetsHostMemory) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot);
  std::atomic<int> right{0};
  Subscriber frames = subscriber_of(planner, {.on_sample = [&](const Sample& sample) {
                                      right += is_frame(sample, 5, cpu()) ? 1 : 0;
                                    }});
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(camera.publish(frame(5), kPatience)));
  EXPECT_TRUE(eventually([&] { return right.load() == 1; }));
  frames.close();
  EXPECT_EQ(camera.stats().copies_d2d, 1u);
}

TEST_P(DirectPublisher, ALateSubscriberHasItFromTheHistoryByWayOfHostMemory) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Program& logger = start("logger");
  Publisher camera = publisher_of(robot, {.qos = {.history = keep_last(3)}});
  Subscriber frames = subscriber_of(planner);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(1, kPatience)));
  for (std::uint64_t i = 1; i <= 4; ++i) {
    TensorDict batch = frame(i);
    batch.set("n", Tensor::of<double>({1}, {1.0 * static_cast<double>(i)}));
    batch.set("name", "frame " + std::to_string(i));
    ASSERT_TRUE(succeeds(camera.publish(batch, kPatience)));
    ASSERT_TRUE(succeeds(frames.recv(kPatience)));
  }
  EXPECT_EQ(camera.stats().copies_d2h, 0u);
  Subscriber late = subscriber_of(logger);
  for (std::uint64_t i = 2; i <= 4; ++i) {
    const auto sample = late.recv(kPatience);
    ASSERT_TRUE(succeeds(sample));
    EXPECT_EQ(sample->sequence, i);
    const TensorDict& arrived = *sample->tensors;
    EXPECT_TRUE(has_pattern(read(arrived["x"]).bytes(), i));
    EXPECT_EQ(arrived.value("name").as_string(), "frame " + std::to_string(i));
    EXPECT_TRUE(bitwise_equal(arrived["n"], Tensor::of<double>({1}, {static_cast<double>(i)})));
  }
  EXPECT_EQ(camera.stats().copies_d2h, 3u);
  // The subscriber reads the next samples on the GPU.
  ASSERT_TRUE(succeeds(camera.publish(frame(5), kPatience)));
  const auto sample = late.recv(kPatience);
  EXPECT_TRUE(is_frame(sample, 5));
  EXPECT_TRUE(is_view(*sample));
  EXPECT_EQ(camera.stats().copies_d2h, 3u);
}

TEST_P(DirectPublisher, ALateSubscriberWaitsForMemoryOfTheHost) {
  Program& robot = start("robot", {.publish_bytes = 4u << 20});
  Program& planner = start("planner");
  Program& logger = start("logger");
  Publisher camera = publisher_of(robot, {.qos = {.history = keep_last(3)}});
  Subscriber frames = subscriber_of(planner);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(1, kPatience)));
  const TensorDict host = patterned(1, kFrame);
  std::vector<Loan> loans;
  auto loan = camera.loan(host.schema());
  for (; loan; loan = camera.loan(host.schema())) loans.push_back(*std::move(loan));
  ASSERT_TRUE(fails_with(loan, ErrorCode::resource_exhausted));
  for (std::uint64_t i = 1; i <= 3; ++i) {
    ASSERT_TRUE(succeeds(camera.publish(frame(i), kPatience)));
    ASSERT_TRUE(is_frame(frames.recv(kPatience), i));
  }
  Subscriber late = subscriber_of(logger);
  ASSERT_TRUE(eventually([&] { return camera.stats().subscribers == 2; }));
  wait_for_device_thread();  // it has tried to copy
  EXPECT_EQ(camera.stats().copies_d2h, 0u);
  // No sample has memory that a trimmed history would free.
  EXPECT_TRUE(fails_with(camera.loan(host.schema()), ErrorCode::resource_exhausted));
  EXPECT_EQ(camera.stats().history_trimmed, 0u);
  loans.clear();
  for (std::uint64_t i = 1; i <= 3; ++i) {
    const auto sample = late.recv(kPatience);
    ASSERT_TRUE(is_frame(sample, i));
    EXPECT_EQ(sample->sequence, i);
    EXPECT_TRUE(sample->gaps.empty());
  }
}

// This holds for any number of copies that lack memory, and whatever else shows samples meanwhile.
TEST(GpuSamples, OnePauseIsEnoughForAllThatWaitForMemory) {
  using Next = detail::GpuSamples::Next;
  detail::GpuSamples samples(nullptr, "camera");
  detail::KeptSample first;
  detail::KeptSample second;
  for (auto* const sample : {&first, &second})
    sample->on_gpu = std::make_shared<detail::SampleOnGpu>();
  const Error short_of_memory{ErrorCode::resource_exhausted, "test", "no memory"};
  EXPECT_EQ(samples.take_staged(first, short_of_memory), Next::later);
  EXPECT_EQ(samples.take_staged(second, short_of_memory), Next::with_others);
  EXPECT_EQ(samples.take_staged(first, short_of_memory), Next::with_others);
  samples.end_pause();
  EXPECT_EQ(samples.take_staged(first, short_of_memory), Next::later);
  const Error lost{ErrorCode::device_lost, "test", "the GPU is lost"};
  EXPECT_EQ(samples.take_staged(second, lost), Next::now);
}

// A stopped reader takes nothing from another one: a reader that holds its share gets copies.
TEST_P(DirectPublisher, AReaderThatStopsTakesNothingFromTheOthers) {
  Program& robot = start("robot", {.device_cap_bytes = 32u << 20});
  Program& planner = start("planner");
  Program& logger = start("logger");
  Publisher camera = publisher_of(robot, {.qos = {.history = keep_last(2)}});
  Subscriber live = subscriber_of(planner);
  Subscriber stopped = subscriber_of(logger, {.window = 64});
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(2, kPatience)));
  constexpr std::uint64_t kCount = 150;  // 32 slots are half of the pool
  for (std::uint64_t i = 1; i <= kCount; ++i) {
    ASSERT_TRUE(succeeds(camera.publish(frame(i), kPatience)));
    const auto sample = live.recv(kPatience);
    ASSERT_TRUE(is_frame(sample, i)) << i;
    ASSERT_TRUE(sample->gaps.empty()) << i;
    ASSERT_TRUE(is_view(*sample)) << i;
  }
  EXPECT_GE(held(robot), 32u) << "it has stopped with its share";
  std::uint64_t accounted = 0;
  while (accounted < kCount) {
    const auto sample = stopped.recv(kPatience);
    ASSERT_TRUE(succeeds(sample));
    EXPECT_TRUE(is_frame(sample, sample->sequence));
    accounted += 1 + missing_in(*sample);
    EXPECT_EQ(accounted, sample->sequence);
  }
}

TEST_P(DirectPublisher, AnOlderSubscriberBesideIsServedByWayOfHostMemory) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Program& logger = start("logger");
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(planner);
  Subscriber older = subscriber_of(logger);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(2, kPatience)));
  make_older(robot, "logger");
  ASSERT_TRUE(succeeds(camera.publish(frame(1), kPatience)));
  const auto direct = frames.recv(kPatience);
  EXPECT_TRUE(is_frame(direct, 1));
  EXPECT_TRUE(is_view(*direct));
  const auto staged = older.recv(kPatience);
  EXPECT_TRUE(is_frame(staged, 1));
  EXPECT_FALSE(is_view(*staged));
  EXPECT_EQ(camera.stats().copies_d2d, 1u);
  EXPECT_EQ(camera.stats().copies_d2h, 1u);
}

TEST_P(DirectPublisher, BeyondItsShareAReaderIsServedByWayOfHostMemory) {
  Program& robot = start("robot", {.device_cap_bytes = 32u << 20});
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot, {.qos = {.history = keep_last(4)}});
  Subscriber frames = subscriber_of(planner, {.window = 64});
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(1, kPatience)));
  constexpr std::uint64_t kCount = 40;  // 32 slots are half of the pool
  for (std::uint64_t i = 1; i <= kCount; ++i)
    ASSERT_TRUE(succeeds(camera.publish(frame(i), kPatience)));
  std::uint64_t received = 0;
  std::uint64_t missed = 0;
  for (std::uint64_t last = 0; last < kCount; ++received) {
    const auto sample = frames.recv(kPatience);
    ASSERT_TRUE(succeeds(sample));
    last = sample->sequence;
    EXPECT_TRUE(is_frame(sample, last));
    missed += missing_in(*sample);
  }
  EXPECT_EQ(received + missed, kCount);
  EXPECT_GE(received, 32u);
  EXPECT_GE(camera.stats().copies_d2h, 1u);
  EXPECT_TRUE(eventually([&] { return held(robot) == 0; }));
}

TEST_P(DirectPublisher, APublishWhoseStreamIsStuckTimesOutAndPublishesNothing) {
  auto [robot, planner, camera, frames] = start_camera();
  ASSERT_TRUE(succeeds(camera.publish(frame(1), kPatience)));
  ASSERT_TRUE(succeeds(frames.recv(kPatience)));
  const auto stream = make_stream();
  {
    const Gate gate(fake, stream);
    EXPECT_TRUE(
        fails_with(camera.publish(frame(2), std::chrono::milliseconds(20), {.stream = stream}),
                   ErrorCode::timeout, "nothing was published"));
  }
  ASSERT_TRUE(succeeds(camera.publish(frame(3), kPatience)));
  const auto sample = frames.recv(kPatience);
  EXPECT_TRUE(is_frame(sample, 3));
  EXPECT_TRUE(sample->gaps.empty());
}

}  // namespace
}  // namespace tendon::test
