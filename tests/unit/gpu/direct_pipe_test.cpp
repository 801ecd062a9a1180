// SPDX-License-Identifier: Apache-2.0
// Tensors that stay on their GPU from a pipe's sender to its receiver, on the double of the driver.
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <utility>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"
#include "transport/shared_memory_link.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class DirectPipe : public GpuPipeTest {
 protected:
  static Tensor numbers(std::uint64_t seed, std::int64_t size) {
    Tensor x = Tensor::empty(DType::u8, {size}).value();
    fill_pattern(x.mutable_bytes(), seed);
    return x;
  }
  [[nodiscard]] TensorDict gpu_batch(std::uint64_t seed, std::int64_t size, Device device = kGpu0) {
    TensorDict batch;
    batch.set("x", on_gpu(numbers(seed, size), device));
    return batch;
  }
  testing::AssertionResult has(const TensorDict& received, std::uint64_t seed,
                               const char* path = "x") {
    if (has_pattern(read(received[path]).bytes(), seed)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << path << " has another content than that of " << seed;
  }
  static std::uint64_t used_bytes(const Context& context, std::size_t gpu = 0) {
    const auto stats = detail::ContextCore::of(context)->memory().passed->stats();
    return gpu < stats.size() ? stats[gpu].second.used_bytes : 0;
  }
  static std::uint64_t segments(const Context& context) {
    return detail::ContextCore::of(context)->memory().passed->stats().at(0).second.segments;
  }
  [[nodiscard]] static std::shared_ptr<detail::Link> link_of(const Context& context) {
    return detail::ContextCore::of(context)->links().all()->front();
  }
  /// Expects that the owner has taken in all returned slots.
  [[nodiscard]] static testing::AssertionResult returns(PipePair& pair) {
    if (eventually([&] {
          (void)link_of(pair.client_context)->collect_returns();
          return used_bytes(pair.client_context) == 0;
        }))
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << used_bytes(pair.client_context) << " bytes are in use";
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, DirectPipe, testing::Values(kShm, kShmManual), way_name);

TEST_P(DirectPipe, ABatchStaysOnItsGpu) {
  PipePair pair = connect();
  std::uint64_t bytes = 0;
  for (const Device device : {kGpu0, kGpu1}) {
    for (const std::int64_t size : {1, 100, 4096, 100'000, 3'000'000}) {
      const auto seed = static_cast<std::uint64_t>(size);
      bytes += seed;
      ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(seed, size, device), kPatience)));
      const auto received = pair.server.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      ASSERT_EQ((*received)["x"].device(), device) << size;
      EXPECT_TRUE(has(*received, seed)) << size;
    }
  }
  const PipeStats sent = pair.client.stats();
  EXPECT_EQ(sent.copies_d2d, 10u);
  EXPECT_EQ(sent.bytes_d2d, bytes);
  EXPECT_EQ(sent.bytes_sent, bytes);
  EXPECT_EQ(sent.copies_d2h, 0u);
  EXPECT_EQ(sent.copies, 0u);
  EXPECT_EQ(pair.server.stats().copies_h2d, 0u);
  EXPECT_EQ(pair.server.stats().bytes_received, bytes);
  const auto paths = pair.client.device_paths();
  ASSERT_EQ(paths.size(), 2u);
  EXPECT_EQ(paths[1].device, kGpu1);
  EXPECT_EQ(paths[1].uuid.find("GPU-"), 0u);
  EXPECT_NE(paths[1].peer.find("server"), std::string::npos);
  EXPECT_TRUE(paths[0].is_direct && paths[1].is_direct) << paths[0].reason << paths[1].reason;
  EXPECT_TRUE(pair.server.device_paths().empty());
}

TEST_P(DirectPipe, HostLeavesAndValuesTravelBeside) {
  PipePair pair = connect();
  for (const std::int64_t size : {10, 200'000}) {
    TensorDict batch(Shape{2});
    batch.set("image", on_gpu(numbers(1, 2 * size).reshape({2, size}).value()));
    batch.set("state/joints", Tensor::of<double>({2}, {1.5, -0.0}));
    batch.set("state/depth", on_gpu(numbers(2, 2 * size).reshape({2, size}).value()));
    batch.set("host", numbers(4, 2 * size).reshape({2, size}).value());
    batch.set("weights", on_gpu(numbers(3, size)), Batching::exempt);
    batch.set("info/name", "a/b");
    ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
    const auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_EQ(*received->schema(), *batch.schema());
    EXPECT_EQ(received->value("info/name").as_string(), "a/b");
    EXPECT_TRUE(bitwise_equal((*received)["state/joints"], batch["state/joints"]));
    EXPECT_TRUE(has_pattern((*received)["host"].bytes(), 4));
    for (const auto& [path, seed] : {std::pair{"image", 1}, {"state/depth", 2}, {"weights", 3}})
      EXPECT_TRUE(has(*received, static_cast<std::uint64_t>(seed), path));
  }
  EXPECT_EQ(pair.client.stats().copies_d2h, 0u);
  EXPECT_EQ(pair.client.stats().copies_d2d, 2u);
}

TEST_P(DirectPipe, APackedBatchTravelsByOneCopy) {
  PipePair pair = connect();
  TensorDict host;
  for (int i = 0; i < 100; ++i) host.set("leaf" + std::to_string(i), numbers(7, 1000));
  const TensorDict batch = packed_on_gpu(host);
  const std::uint64_t before = fake.calls("cuMemcpyAsync");
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  EXPECT_EQ(fake.calls("cuMemcpyAsync") - before, 1u);
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 7, "leaf99"));
}

TEST_P(DirectPipe, ZeroBytesTravelToo) {
  PipePair pair = connect();
  TensorDict batch;
  batch.set("none", on_gpu(Tensor::empty(DType::f32, {0, 3}).value()));
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ((*received)["none"].shape(), Shape({0, 3}));
  EXPECT_EQ(pair.client.stats().copies_d2d, 1u);
}

TEST_P(DirectPipe, SendDoesNotWaitForTheGpuAndTheReceiverDoes) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 4096), kPatience)));  // the peer has answered
  ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  const auto stream = make_stream();
  const TensorDict batch = gpu_batch(2, 100'000);
  Gate gate(fake, stream);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience, {.stream = stream})));
  EXPECT_TRUE(fails_with(pair.server.recv(10ms), ErrorCode::timeout, "GPU"));
  EXPECT_TRUE(fails_with(pair.client.flush(10ms), ErrorCode::timeout));
  auto flushed = std::async(std::launch::async, [&] { return pair.client.flush(kPatience); });
  gate.open();
  EXPECT_TRUE(succeeds(flushed.get()));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 2));
}

TEST_P(DirectPipe, ASleepingReceiverIsWoken) {
  PipePair pair = connect();
  const TensorDict batch = gpu_batch(2, 4096);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  const auto stream = make_stream();
  Gate gate(fake, stream);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience, {.stream = stream})));
  auto received = std::async(std::launch::async, [&] { return pair.server.recv(kPatience); });
  const auto sleeps = [&] {
    // The messages are the opening, one schema and two batches.
    return link_of(pair.server_context)->stats().messages_received == 4 &&
           received.wait_for(0ms) == std::future_status::timeout;
  };
  EXPECT_TRUE(eventually(sleeps));
  gate.open();
  const auto batch_there = received.get();
  ASSERT_TRUE(succeeds(batch_there));
  EXPECT_TRUE(has(*batch_there, 2));
}

TEST_P(DirectPipe, SlotsReturnAndAreUsedAgain) {
  PipePair pair = connect();
  for (std::uint64_t i = 0; i < 50; ++i) {
    ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(i, 5'000'000), kPatience)));
    const auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    ASSERT_TRUE(has(*received, i));
  }
  EXPECT_LE(segments(pair.client_context), 3u);
  EXPECT_TRUE(returns(pair));
  EXPECT_EQ(pair.client.stats().copies_d2d, 50u);
}

TEST_P(DirectPipe, BeyondItsShareALinkIsStaged) {
  PipePair pair = connect({.device_cap_bytes = 64 << 20});
  std::vector<TensorDict> held;
  for (std::uint64_t i = 0; i < 12; ++i) {
    ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(i, 6 << 20), kPatience))) << i;
    auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received)) << i;
    EXPECT_TRUE(has(*received, i));
    held.push_back(*std::move(received));
  }
  const PipeStats stats = pair.client.stats();
  EXPECT_GT(stats.copies_d2d, 2u);
  EXPECT_GT(stats.copies_d2h, 2u);
  EXPECT_EQ(stats.copies_d2d + stats.copies_d2h, 12u);
  for (std::uint64_t i = 0; i < held.size(); ++i) EXPECT_TRUE(has(held[i], i));
}

TEST_P(DirectPipe, WhatIsLargerThanThePoolIsStaged) {
  PipePair pair = connect({.device_cap_bytes = 8 << 20});
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 20 << 20), kPatience)));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 1));
  EXPECT_EQ(pair.client.stats().copies_d2h, 1u);
}

TEST_P(DirectPipe, AMessageThatIsDroppedUnreadGivesItsSlotBackOnceItsCopyIsDone) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 4096), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  const auto stream = make_stream();
  const TensorDict batch = gpu_batch(2, 3'000'000);
  Gate gate(fake, stream);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience, {.stream = stream})));
  pair.server.cancel();
  (void)link_of(pair.client_context)->collect_returns();
  EXPECT_NE(used_bytes(pair.client_context), 0u);
  gate.open();
  EXPECT_TRUE(returns(pair));
}

TEST_P(DirectPipe, APollBeforeTheAnswerIsStaged) {
  PipePair pair = connect();
  const auto sent = pair.client.send(gpu_batch(1, 4096), Deadline::now());
  if (sent) {
    EXPECT_EQ(pair.client.stats().copies_d2h, 1u);
    EXPECT_TRUE(succeeds(pair.server.recv(kPatience)));
  } else {
    EXPECT_EQ(sent.error().code, ErrorCode::timeout);
  }
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(2, 4096), kPatience)));
  EXPECT_EQ(pair.client.stats().copies_d2d, 1u);
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 2));
}

TEST_P(DirectPipe, ManyMessagesOfTwoPipesArriveInOrder) {
  PipePair pair = connect();
  auto [second_client, second_server] = another_pipe(pair);
  const std::uint64_t count = 3000;  // more than there are ready words
  const TensorDict batch = gpu_batch(5, 512);
  const auto send = [&](Pipe& pipe) {
    for (std::uint64_t i = 0; i < count; ++i)
      if (const auto sent = pipe.send(batch, kPatience); !sent) return sent;
    return Result<void>();
  };
  auto first = std::async(std::launch::async, [&] { return send(pair.client); });
  auto second = std::async(std::launch::async, [&] { return send(second_client); });
  for (std::uint64_t i = 0; i < count; ++i) {
    ASSERT_TRUE(succeeds(pair.server.recv(kPatience))) << i;
    ASSERT_TRUE(succeeds(second_server.recv(kPatience))) << i;
  }
  EXPECT_TRUE(succeeds(first.get()));
  EXPECT_TRUE(succeeds(second.get()));
  EXPECT_EQ(pair.client.stats().messages_sent, count);
  EXPECT_EQ(pair.server.stats().incomplete, 0u);
}

TEST_P(DirectPipe, CloseWaitsForCopiesUnderWay) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 4096), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  const auto stream = make_stream();
  const TensorDict batch = gpu_batch(2, 100'000);
  Gate gate(fake, stream);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience, {.stream = stream})));
  EXPECT_TRUE(fails_with(pair.client.close(10ms), ErrorCode::timeout));
  auto closed =
      std::async(std::launch::async, [&] { return pair.client_context.close(kPatience); });
  gate.open();
  EXPECT_TRUE(succeeds(closed.get()));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 2));
}

TEST_P(DirectPipe, ACapturedStreamIsRefusedBeforeAnythingIsSent) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 4096), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  const auto stream = make_stream();
  const auto gpu = program.gpu(0);
  const TensorDict batch = gpu_batch(2, 4096);
  {
    const cuda::PrimaryContext::Current current(*gpu->context());
    ASSERT_EQ(fake.begin_capture(stream, 2), 0);
  }
  EXPECT_TRUE(fails_with(pair.client.send(batch, kPatience, {.stream = stream}),
                         ErrorCode::invalid_argument, "captured"));
  {
    const cuda::PrimaryContext::Current current(*gpu->context());
    std::size_t captured = 1;
    ASSERT_EQ(fake.end_capture(stream, &captured), 0);
    EXPECT_EQ(captured, 0u);
  }
  EXPECT_TRUE(returns(pair));
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience, {.stream = stream})));
  EXPECT_TRUE(succeeds(pair.server.recv(kPatience)));
}

TEST_P(DirectPipe, AWordThatCannotBeWrittenMakesItsMessageIncomplete) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 4096), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  fake.fail("cuStreamWriteValue64_v2", 1, 0);
  EXPECT_TRUE(succeeds(pair.client.send(gpu_batch(2, 4096), kPatience)));
  fake.fail("cuStreamWriteValue64_v2", 0, 0);
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(3, 4096), kPatience)));
  auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 3));
  *received = TensorDict();
  EXPECT_EQ(pair.server.stats().incomplete, 1u);
  EXPECT_TRUE(returns(pair));
}

TEST_P(DirectPipe, SegmentsThatWentAreTold) {
  PipePair pair = connect();
  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(turn, 3'000'000), kPatience)));
    {
      const auto received = pair.server.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      EXPECT_TRUE(has(*received, turn));
    }
    ASSERT_TRUE(returns(pair));
    detail::ContextCore::of(pair.client_context)
        ->memory()
        .passed->trim(cuda::DevicePools::TimePoint::max());
    EXPECT_EQ(segments(pair.client_context), 0u);
  }
  EXPECT_EQ(pair.client.stats().copies_d2d, 3u);
}

}  // namespace
}  // namespace tendon::test
