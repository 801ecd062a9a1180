// SPDX-License-Identifier: Apache-2.0
// Loans on a GPU that are published, on the double of the driver.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fabric/nodes/context_fabric.hpp"
#include "support/zenoh_network.hpp"
#include "unit/gpu/direct_publishers.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<const Schema> frame_schema(std::uint64_t size = kFrame) {
  return Schema::make({{"x", DType::u8, {static_cast<std::int64_t>(size)}}}).value();
}

/// Notices that a thread waits: only then does the thread make progress for its Context.
class SeesWait final : public detail::Work {
 public:
  bool progress() override {
    if (std::this_thread::get_id() == thread_.load()) is_seen_.store(true);
    return !is_seen_.load();
  }
  /// Called by that thread, before it waits.
  void begin() { thread_.store(std::this_thread::get_id()); }
  [[nodiscard]] bool is_seen() const { return is_seen_.load(); }

 private:
  std::atomic<std::thread::id> thread_{};
  std::atomic<bool> is_seen_{false};
};

class PublisherLoans : public DirectPublisher {
 protected:
  /// A loan that is filled at once, in place of a kernel of the program.
  [[nodiscard]] Loan filled(Publisher& publisher, std::uint64_t seed, std::uint64_t size = kFrame,
                            void* stream = kStreamPerThread) {
    Loan loan =
        publisher.loan(frame_schema(size), {.device = kGpu0, .stream = stream}, kPatience).value();
    fill(loan, seed);
    return loan;
  }
  void fill(const Loan& loan, std::uint64_t seed) {
    const Tensor x = loan["x"];
    fill_pattern({static_cast<std::byte*>(fake.writes(address(x.storage()), x.size_bytes())),
                  x.size_bytes()},
                 seed);
  }
  testing::AssertionResult has(const Result<Sample>& sample, std::uint64_t seed,
                               Device device = kGpu0) {
    if (!sample) return testing::AssertionFailure() << sample.error().message();
    const Tensor x = (*sample->tensors)["x"];
    if (x.device() != device) return testing::AssertionFailure() << "it lies on " << x.device();
    if (has_pattern((device == cpu() ? x : read(x)).bytes(), seed))
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << "it is not the loan of " << seed;
  }
  [[nodiscard]] static std::uint64_t used_bytes(const Program& program) {
    for (const auto& link : links_of(program)) (void)link->collect_returns();
    const auto stats = detail::ContextCore::of(program.context)->memory().passed->stats();
    return stats.empty() ? 0 : stats.front().second.used_bytes;
  }
};
INSTANTIATE_TEST_SUITE_P(Paths, PublisherLoans, testing::Values(kShm, kTcp), way_name);

TEST_P(PublisherLoans, ALoanIsPublishedWithoutACopyToAllThatReadIt) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Program& logger = start("logger");
  Publisher camera = publisher_of(robot);
  Subscriber first = subscriber_of(planner);
  Subscriber second = subscriber_of(logger);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(2, kPatience)));
  const bool is_direct = GetParam().is_shm();
  std::uint64_t number = 0;
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{4096}, kFrame}) {
    Loan loan = filled(camera, size, size);
    EXPECT_EQ(loan["x"].storage().access(), Access::read_write);
    loan.set("label", "a cup");
    const std::uint64_t copies = fake.calls("cuMemcpyAsync");
    const auto published = camera.publish(std::move(loan), kPatience);
    ASSERT_TRUE(succeeds(published));
    EXPECT_EQ(fake.calls("cuMemcpyAsync") == copies, is_direct);
    EXPECT_TRUE(loan.empty());
    EXPECT_EQ(published->sequence, ++number);
    EXPECT_EQ(published->shown, 2u);
    for (Subscriber* const subscriber : {&first, &second}) {
      const auto sample = subscriber->recv(kPatience);
      ASSERT_TRUE(has(sample, size));
      EXPECT_EQ(is_view(*sample), is_direct);
      EXPECT_EQ(sample->tensors->value("label").as_string(), "a cup");
      EXPECT_TRUE(sample->gaps.empty());
    }
  }
  EXPECT_EQ(camera.stats().copies_d2d, 0u);
  EXPECT_EQ(camera.stats().copies_d2h, is_direct ? 0u : 3u);
}

TEST_P(PublisherLoans, ItIsShownBehindTheWorkThatFillsIt) {
  auto [robot, planner, camera, frames] = start_camera();
  ASSERT_TRUE(succeeds(camera.publish(filled(camera, 1), kPatience)));
  ASSERT_TRUE(has(frames.recv(kPatience), 1));
  const auto stream = make_stream();
  Loan loan = filled(camera, 2, kFrame, stream);
  Gate gate(fake, stream);
  const auto late = camera.publish(std::move(loan), 20ms, {.stream = stream});
  EXPECT_TRUE(fails_with(late, ErrorCode::timeout, "nothing was published"));
  EXPECT_TRUE(fails_with(late, ErrorCode::timeout,
                         GetParam().is_shm() ? "had not filled the loan" : "had not copied"));
  EXPECT_FALSE(loan.empty()) << "it is as it was";
  auto published = std::async(std::launch::async, [&] {
    return camera.publish(std::move(loan), kPatience, {.stream = stream});
  });
  EXPECT_TRUE(fails_with(frames.recv(10ms), ErrorCode::timeout));
  gate.open();
  EXPECT_TRUE(succeeds(published.get()));
  const auto sample = frames.recv(kPatience);
  ASSERT_TRUE(has(sample, 2));
  EXPECT_TRUE(sample->gaps.empty());
}

TEST_P(PublisherLoans, TheHistoryKeepsItForThoseThatComeLater) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Program& logger = start("logger");
  Publisher camera = publisher_of(robot, {.qos = {.history = keep_last(3)}});
  Subscriber frames = subscriber_of(planner);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(1, kPatience)));
  for (std::uint64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(succeeds(camera.publish(filled(camera, i), kPatience)));
    ASSERT_TRUE(has(frames.recv(kPatience), i));
  }
  Subscriber late = subscriber_of(logger);
  for (std::uint64_t i = 2; i <= 4; ++i) {
    const auto sample = late.recv(kPatience);
    ASSERT_TRUE(has(sample, i));
    EXPECT_EQ(sample->sequence, i);
  }
  EXPECT_EQ(camera.stats().copies_d2d, 0u);
}

TEST_P(PublisherLoans, ItsMemoryReturnsWhenNobodyHasItAnyMore) {
  auto [robot, planner, camera, frames] = start_camera();
  ASSERT_TRUE(succeeds(camera.publish(filled(camera, 1), kPatience)));
  auto sample = frames.recv(kPatience);
  ASSERT_TRUE(has(sample, 1));
  // A publish of host memory replaces it in the history.
  ASSERT_TRUE(succeeds(camera.publish(patterned(2, 10), kPatience)));
  ASSERT_TRUE(succeeds(frames.recv(kPatience)));
  if (GetParam().is_shm()) {
    wait_for_device_thread();
    EXPECT_NE(used_bytes(robot), 0u) << "the view is there";
  }
  *sample = Sample();
  EXPECT_TRUE(eventually([&] { return used_bytes(robot) == 0; }));
}

TEST_P(PublisherLoans, ALoanThatIsDroppedReturnsBehindItsStream) {
  Program& robot = start("robot");
  Publisher camera = publisher_of(robot);
  const auto stream = make_stream();
  {
    Gate gate(fake, stream);
    { const Loan loan = filled(camera, 1, kFrame, stream); }
    wait_for_device_thread();
    EXPECT_NE(used_bytes(robot), 0u);
  }
  EXPECT_TRUE(eventually([&] { return used_bytes(robot) == 0; }));
}

TEST_P(PublisherLoans, OnesThatOutliveThePublisherAndTheContextAreDropped) {
  Program& robot = start("robot");
  Publisher camera = publisher_of(robot);
  Loan first = filled(camera, 1);
  Loan second = filled(camera, 2);
  ASSERT_TRUE(succeeds(camera.close(kPatience)));
  EXPECT_TRUE(fails_with(camera.publish(std::move(first), kPatience), ErrorCode::pipe_closed));
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(fails_with(camera.loan(frame_schema(), {.device = kGpu0}, kPatience),
                         ErrorCode::pipe_closed));
  // Another publisher of the Context can publish it.
  Publisher other = Publisher::declare(robot.node, "other").value();
  EXPECT_TRUE(succeeds(other.publish(std::move(first), kPatience)));
  stop(robot);
  fill(second, 3);
}

TEST_P(PublisherLoans, WhereASampleWouldBeStagedTheLoanIs) {
  Program& robot = start("robot", {.device_cap_bytes = 32u << 20});
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot, {.qos = {.history = keep_last(8)}});
  ASSERT_TRUE(succeeds(camera.publish(filled(camera, 1), kPatience)));
  EXPECT_EQ(camera.stats().copies_d2h, 1u) << "nobody subscribes";
  Subscriber frames = subscriber_of(planner);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(has(frames.recv(kPatience), 1));
  // The sample is larger than the history's share of the pool.
  ASSERT_TRUE(succeeds(camera.publish(filled(camera, 2, 2u << 20), kPatience)));
  EXPECT_EQ(camera.stats().copies_d2h, 2u);
  const auto sample = frames.recv(kPatience);
  EXPECT_TRUE(has(sample, 2));
  EXPECT_FALSE(is_view(*sample));
  EXPECT_TRUE(eventually([&] { return used_bytes(robot) == 0; })) << "the slots are free again";
}

TEST_P(PublisherLoans, AnOlderSubscriberBesideIsServedByWayOfHostMemory) {
  if (!GetParam().is_shm()) GTEST_SKIP() << "all are";
  Program& robot = start("robot");
  Program& planner = start("planner");
  Program& logger = start("logger");
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(planner);
  Subscriber older = subscriber_of(logger);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(2, kPatience)));
  make_older(robot, "logger");
  ASSERT_TRUE(succeeds(camera.publish(filled(camera, 1), kPatience)));
  const auto direct = frames.recv(kPatience);
  EXPECT_TRUE(has(direct, 1));
  EXPECT_TRUE(is_view(*direct));
  const auto staged = older.recv(kPatience);
  EXPECT_TRUE(has(staged, 1));
  EXPECT_FALSE(is_view(*staged));
  EXPECT_EQ(camera.stats().copies_d2d, 0u);
  EXPECT_EQ(camera.stats().copies_d2h, 1u);
}

TEST_P(PublisherLoans, AFullPoolIsWaitedForAndSaysWhoHoldsIt) {
  Program& robot = start("robot", {.device_cap_bytes = 32u << 20});
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot);
  Subscriber frames = subscriber_of(planner);
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(camera.publish(filled(camera, 3, 2u << 20), kPatience)));
  const auto view = frames.recv(kPatience);
  ASSERT_TRUE(has(view, 3));
  const std::uint64_t large = 12u << 20;
  std::optional<Loan> first = filled(camera, 1, large);
  const Loan second = filled(camera, 2, large);
  EXPECT_TRUE(fails_with(camera.loan(frame_schema(large), {.device = kGpu0}, 10ms),
                         ErrorCode::resource_exhausted,
                         GetParam().is_shm() ? "most are held by planner (" : "no reader"));
  EXPECT_TRUE(fails_with(camera.loan(frame_schema(40u << 20), {.device = kGpu0}, kPatience),
                         ErrorCode::message_too_large, "device_cap_bytes"));
  auto third = std::async(std::launch::async, [&] {
    return camera.loan(frame_schema(large), {.device = kGpu0}, kPatience);
  });
  EXPECT_EQ(third.wait_for(0ms), std::future_status::timeout);
  first.reset();
  EXPECT_TRUE(succeeds(third.get()));
}

TEST_P(PublisherLoans, AWaitForRoomEndsWithThePublisher) {
  Program& robot = start("robot", {.device_cap_bytes = 32u << 20});
  Publisher camera = publisher_of(robot);
  const std::uint64_t large = 20u << 20;
  const Loan first = filled(camera, 1, large);
  const auto sees = std::make_shared<SeesWait>();
  detail::ContextCore::of(robot.context)->add_work(sees);
  auto second = std::async(std::launch::async, [&] {
    sees->begin();
    return camera.loan(frame_schema(large), {.device = kGpu0}, kPatience);
  });
  ASSERT_TRUE(eventually([&] { return sees->is_seen(); }));
  ASSERT_TRUE(succeeds(camera.close(kPatience)));
  EXPECT_TRUE(fails_with(second.get(), ErrorCode::pipe_closed));
}

TEST_P(PublisherLoans, EachSampleMayLieOnAnotherGpu) {
  auto [robot, planner, camera, frames] = start_camera();
  for (const Device device : {kGpu0, kGpu1, kGpu0}) {
    Loan loan = camera.loan(frame_schema(), {.device = device}, kPatience).value();
    fill(loan, 7);
    ASSERT_TRUE(succeeds(camera.publish(std::move(loan), kPatience)));
    const auto sample = frames.recv(kPatience);
    EXPECT_TRUE(has(sample, 7, device));
    EXPECT_EQ(is_view(*sample), GetParam().is_shm());
  }
}

TEST_P(PublisherLoans, AFrozenOneIsPublishedOnSeveralKeysWithoutACopy) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot);
  Publisher archive = Publisher::declare(robot.node, "archive").value();
  Subscriber frames = subscriber_of(planner);
  Subscriber archived = Subscriber::declare(planner.node, "archive").value();
  ASSERT_TRUE(succeeds(camera.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(archive.wait_for_subscribers(1, kPatience)));
  const TensorDict batch = filled(camera, 5).freeze().value();
  for (Publisher* const publisher : {&camera, &archive, &camera})
    ASSERT_TRUE(succeeds(publisher->publish(batch, kPatience)));
  for (Subscriber* const subscriber : {&frames, &archived, &frames}) {
    const auto sample = subscriber->recv(kPatience);
    EXPECT_TRUE(has(sample, 5));
    EXPECT_EQ(is_view(*sample), GetParam().is_shm());
  }
  EXPECT_EQ(camera.stats().copies_d2d + archive.stats().copies_d2d, 0u);
}

TEST_P(PublisherLoans, ABarePublisherRefusesIt) {
  ZenohNetwork network{{}};
  Context context = Context::create({.name = "robot", .lease = kLongLease}).value();
  detail::ZenohMembership membership;
  membership.client = network.open();
  membership.open_for_plain = [&](Deadline) -> Result<std::unique_ptr<detail::ZenohPort>> {
    return network.open();
  };
  const auto fabric =
      detail::ContextFabric::of(detail::ContextCore::of(context), Profile::local).value();
  ASSERT_TRUE(succeeds(fabric->adopt({"the double"}, std::move(membership))));
  Node node = Node::join(context,
                         {.domain = "brain",
                          .name = "robot",
                          .routers = {"the double"},
                          .peers = std::vector<std::string>(),
                          .listen = "127.0.0.1:0"},
                         kPatience)
                  .value();
  Publisher camera = Publisher::declare(node, "camera").value();
  Publisher bare = Publisher::declare(node, "bare", {.plain_peers = PlainPeers::bare}).value();
  Loan loan = filled(camera, 1);
  EXPECT_TRUE(fails_with(bare.publish(std::move(loan), kPatience), ErrorCode::unsupported_device,
                         "cuda:0"));
  EXPECT_FALSE(loan.empty());  // NOLINT(bugprone-use-after-move): said by its header
}

TEST_P(PublisherLoans, WhatIsWrongIsRefused) {
  Program& robot = start("robot");
  Program& planner = start("planner");
  Publisher camera = publisher_of(robot, {.schema = frame_schema()});
  Publisher theirs = publisher_of(planner);
  EXPECT_TRUE(fails_with(camera.loan(frame_schema(), {.device = {DeviceKind::cuda, 7}}, kPatience),
                         ErrorCode::unsupported_device, "cuda:7"));
  EXPECT_TRUE(fails_with(camera.loan(frame_schema(), {.device = {DeviceKind::rocm, 0}}, kPatience),
                         ErrorCode::unsupported_device, "rocm"));
  EXPECT_TRUE(fails_with(camera.loan(nullptr, {.device = kGpu0}, kPatience),
                         ErrorCode::invalid_argument, "schema"));
  EXPECT_TRUE(fails_with(camera.loan(frame_schema(5), {.device = kGpu0}, kPatience),
                         ErrorCode::schema_mismatch));
  EXPECT_TRUE(fails_with(
      camera.loan(frame_schema(), {.device = kGpu0, .stream = make_stream(kGpu1)}, kPatience),
      ErrorCode::invalid_argument, "another context"));
  Loan loan = filled(camera, 1);
  EXPECT_TRUE(fails_with(theirs.publish(std::move(loan), kPatience), ErrorCode::wrong_link,
                         "another Context"));
  EXPECT_TRUE(fails_with(camera.publish(std::move(loan), kPatience, {.stream = make_stream(kGpu1)}),
                         ErrorCode::invalid_argument, "another context"));
  const auto stream = make_stream();
  {
    const auto gpu = program.gpu(0);
    const cuda::PrimaryContext::Current current(*gpu->context());
    ASSERT_EQ(fake.begin_capture(stream, 2), 0);
  }
  EXPECT_TRUE(fails_with(camera.publish(std::move(loan), kPatience, {.stream = stream}),
                         ErrorCode::invalid_argument, "captured"));
  EXPECT_TRUE(
      fails_with(camera.loan(frame_schema(), {.device = kGpu0, .stream = stream}, kPatience),
                 ErrorCode::invalid_argument, "captured"));
  {
    const auto gpu = program.gpu(0);
    const cuda::PrimaryContext::Current current(*gpu->context());
    std::size_t captured = 1;
    ASSERT_EQ(fake.end_capture(stream, &captured), 0);
    EXPECT_EQ(captured, 0u);
  }
  EXPECT_FALSE(loan.empty());
  ASSERT_TRUE(succeeds(camera.publish(std::move(loan), kPatience)));
  EXPECT_TRUE(
      fails_with(camera.publish(std::move(loan), kPatience), ErrorCode::invalid_argument, "empty"));
  Loan host = camera.loan(frame_schema(), LoanOptions{}, kPatience).value();
  EXPECT_EQ(host["x"].device(), cpu());
  EXPECT_TRUE(succeeds(camera.publish(std::move(host), kPatience)));
}

}  // namespace
}  // namespace tendon::test
