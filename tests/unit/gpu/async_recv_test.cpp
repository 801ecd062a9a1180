// SPDX-License-Identifier: Apache-2.0
// Asynchronous receives whose tensors are wanted on a GPU, on the double of the driver.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kSmall = 1000;
constexpr std::int64_t kLarge = 20 << 20;  // in three pieces
constexpr std::uint64_t kMebi = std::uint64_t{1} << 20;

/// Messages travel through host memory; direct_recv_test.cpp tests the direct ones.
class AsyncGpuReceive : public StagedGpuPipeTest {
 protected:
  /// One leaf `x` on a GPU.
  [[nodiscard]] TensorDict there(std::uint64_t seed, std::int64_t size, Device device = kGpu0) {
    TensorDict batch;
    batch.set("x", on_gpu(patterned(seed, static_cast<std::uint64_t>(size))["x"], device));
    return batch;
  }
  /// Expects that its leaf lies on `device` and holds the pattern now, whatever work the streams
  /// have left.
  [[nodiscard]] testing::AssertionResult lies_there(const Result<TensorDict>& batch,
                                                    std::uint64_t seed, Device device = kGpu0) {
    if (!batch) return testing::AssertionFailure() << batch.error().message();
    const Tensor x = (*batch)["x"];
    if (x.device() != device) return testing::AssertionFailure() << "on " << to_string(x.device());
    if (has_pattern(device == cpu() ? x.bytes() : at_once(x).bytes(), seed))
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << "another content than that of " << seed;
  }
  /// The stream on which the device thread makes copies.
  [[nodiscard]] cuda::StreamHandle own_stream(Device device = kGpu0) {
    const auto gpu = program.gpu(device.index);
    return gpu->thread().run([&] { return gpu->own_stream(); }, kPatience).value();
  }
  /// Waits until the device thread has done its pending work.
  void settle() {
    auto* const thread = cuda::process_device_thread().value();
    EXPECT_TRUE(succeeds(thread->run([] { return Result<void>(); }, kPatience)));
  }
  /// Waits for the first copy since `before` that the device thread has enqueued on its stream. The
  /// copy itself does not run yet.
  [[nodiscard]] bool is_under_way(PipePair& pair, std::uint64_t before) {
    return eventually([&] { return fake.calls("cuMemcpyAsync") > before; },
                      [&] { pair.server_context.progress(); });
  }
  [[nodiscard]] std::uint64_t copies() const { return fake.calls("cuMemcpyAsync"); }
};
TENDON_ON_EVERY_WAY(AsyncGpuReceive);

TEST_P(AsyncGpuReceive, ABatchArrivesWhereItsSenderHadIt) {
  PipePair pair = connect();
  for (const Device device : {kGpu0, kGpu1}) {
    for (const std::int64_t size : {std::int64_t{1}, kSmall, kLarge}) {
      const auto seed = static_cast<std::uint64_t>(size);
      auto posted = pair.server.recv_async();
      ASSERT_TRUE(succeeds(pair.client.send(there(seed, size, device), kPatience)));
      ASSERT_TRUE(lies_there(posted.wait(kPatience), seed, device)) << size;
    }
  }
  EXPECT_EQ(pair.server.stats().copies_h2d, 6u);
  EXPECT_EQ(pair.server.stats().bytes_h2d, 2u * (1 + kSmall + kLarge));
}

TEST_P(AsyncGpuReceive, AFullGpuEndsTheReceiveAndTheMessageStays) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(there(1, kSmall), kPatience)));
  constexpr int kOutOfMemory = 2;
  fake.fail("cuMemCreate", kOutOfMemory, 0);
  EXPECT_TRUE(fails_with(pair.server.recv_async().wait(kPatience), ErrorCode::resource_exhausted));
  fake.fail("cuMemCreate", 0, 0);
  EXPECT_TRUE(lies_there(pair.server.recv_async().wait(kPatience), 1));
}

TEST_P(AsyncGpuReceive, TheReceiverChoosesTheDevice) {
  PipePair pair = connect();
  for (const std::int64_t size : {std::int64_t{64}, kLarge}) {
    for (const Device from : {cpu(), kGpu0}) {
      for (const Device to : {cpu(), kGpu0, kGpu1}) {
        const TensorDict batch =
            from == cpu() ? patterned(5, static_cast<std::uint64_t>(size)) : there(5, size, from);
        ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
        ASSERT_TRUE(lies_there(pair.server.recv_async({.device = to}).wait(kPatience), 5, to))
            << from << " to " << to;
      }
    }
  }
}

TEST_P(AsyncGpuReceive, LeavesAndValuesOfHostMemoryStayThere) {
  PipePair pair = connect();
  TensorDict batch = there(1, 100'000);
  batch.set("joints", Tensor::of<double>({2}, {1.5, -0.0}));
  batch.set("info/name", "a/b");
  batch.set("none", on_gpu(Tensor::empty(DType::f32, {0, 3}).value()));
  auto posted = pair.server.recv_async();
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  const auto received = posted.wait(kPatience);
  ASSERT_TRUE(lies_there(received, 1));
  EXPECT_TRUE(bitwise_equal((*received)["joints"], batch["joints"]));
  EXPECT_EQ((*received)["none"].device(), kGpu0);
  EXPECT_EQ(received->value("info/name").as_string(), "a/b");
}

TEST_P(AsyncGpuReceive, AMessageOfEitherKindArrivesOnTheGpu) {
  PipePair pair = connect();
  auto first = pair.server.recv_message_async();
  auto second = pair.server.recv_message_async();
  ASSERT_TRUE(succeeds(pair.client.send(there(1, kSmall), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.send(Bytes(), {.tag = 7}, kPatience)));
  const auto message = first.wait(kPatience);
  ASSERT_TRUE(succeeds(message));
  ASSERT_TRUE(message->tensors.has_value());
  EXPECT_TRUE(lies_there(*message->tensors, 1));
  const auto bytes = second.wait(kPatience);
  ASSERT_TRUE(succeeds(bytes));
  EXPECT_EQ(bytes->tag, 7u);
}

TEST_P(AsyncGpuReceive, ItIsDoneWhenTheGpuHasMadeTheCopy) {
  PipePair pair = connect();
  auto first = pair.server.recv_async();
  auto second = pair.server.recv_async({.device = kGpu0});
  auto third = pair.server.recv_async();
  {
    const Gate gate(fake, own_stream());
    const std::uint64_t before = copies();
    ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 1), kPatience)));
    ASSERT_TRUE(succeeds(pair.client.send(patterned(2, 100'000), kPatience)));
    ASSERT_TRUE(succeeds(pair.client.send(numbered(3), kPatience)));
    EXPECT_TRUE(is_patterned(first.wait(kPatience).value(), 1, 1));
    ASSERT_TRUE(is_under_way(pair, before));
    EXPECT_TRUE(fails_with(second.wait(10ms), ErrorCode::timeout));
    EXPECT_FALSE(third.done()) << "its turn is later";
    EXPECT_TRUE(fails_with(pair.server.recv(0s), ErrorCode::timeout));
  }
  EXPECT_TRUE(lies_there(second.wait(kPatience), 2));
  EXPECT_EQ(number_of(third.wait(kPatience).value()), 3);
}

TEST_P(AsyncGpuReceive, CallbacksRunInTheOrderOfTheMessages) {
  PipePair pair = connect();
  constexpr int kMessages = 12;
  std::vector<int> order;
  std::atomic<int> count{0};
  std::vector<Completion<TensorDict>> posted;
  for (int i = 0; i < kMessages; ++i) {
    RecvOptions options;
    if (i % 3 != 0) options.device = i % 3 == 1 ? kGpu1 : kGpu0;
    posted.push_back(pair.server.recv_async(options));
    posted.back().on_done([&, i](const Result<TensorDict>& received) {
      EXPECT_TRUE(succeeds(received));
      order.push_back(i);
      count.fetch_add(1);
    });
  }
  for (int i = 0; i < kMessages; ++i)
    ASSERT_TRUE(succeeds(pair.client.send(numbered(i), kPatience)));
  ASSERT_TRUE(eventually([&] { return count.load() == kMessages; },
                         [&] { pair.server_context.progress(); }));
  for (int i = 0; i < kMessages; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

// Only the device thread waits for the driver

TEST_P(AsyncGpuReceive, ADeviceThreadThatIsBusyStopsNoOtherMessage) {
  PipePair pair = connect();
  auto [other_client, other_server] = another_pipe(pair);
  std::atomic<bool> is_held{true};
  const auto gpu = program.gpu(0);
  ASSERT_TRUE(succeeds(gpu->thread().post([&] {
    while (is_held.load()) std::this_thread::yield();
  })));
  auto first = pair.server.recv_async({.device = kGpu0});
  auto second = pair.server.recv_async({.device = kGpu1});
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, kSmall), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.send(patterned(2, kSmall), kPatience)));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(succeeds(other_client.send(numbered(i), kPatience)));
    EXPECT_EQ(number_of(other_server.recv(kPatience).value()), i);
  }
  EXPECT_FALSE(first.done());
  is_held.store(false);
  EXPECT_TRUE(lies_there(first.wait(kPatience), 1));
  EXPECT_TRUE(lies_there(second.wait(kPatience), 2, kGpu1));
}

// Messages that cannot be delivered

TEST_P(AsyncGpuReceive, AGpuThatIsNotThereEndsItBeforeAMessageComes) {
  PipePair pair = connect();
  EXPECT_TRUE(fails_with(pair.server.recv_async({.device = Device{DeviceKind::rocm, 0}}).wait(0s),
                         ErrorCode::unsupported_device, "rocm:0"));
  EXPECT_TRUE(
      fails_with(pair.server.recv_async({.device = Device{DeviceKind::cuda, 7}}).wait(kPatience),
                 ErrorCode::unsupported_device, "cuda:7"));
  ASSERT_TRUE(succeeds(pair.client.send(there(1, kSmall), kPatience)));
  EXPECT_TRUE(fails_with(pair.server.recv_async({.mode = RecvMode::view_only}).wait(kPatience),
                         ErrorCode::no_credit, "host memory"));
  EXPECT_TRUE(lies_there(pair.server.recv_async({.device = cpu()}).wait(kPatience), 1, cpu()));
}

TEST_P(AsyncGpuReceive, AMessageThatFindsNoMemoryKeepsItsTurnAndNoSlotOfThePeer) {
  PipePair pair = connect({}, {.device_cap_bytes = 4 * kMebi});
  auto first = pair.server.recv_async({.device = kGpu0});
  auto second = pair.server.recv_async({.device = cpu()});
  auto third = pair.server.recv_async({.device = kGpu0});
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 5 * kMebi), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.send(numbered(2), kPatience)));
  EXPECT_TRUE(fails_with(first.wait(kPatience), ErrorCode::message_too_large, "device_cap_bytes"));
  const auto received = second.wait(kPatience);
  ASSERT_TRUE(lies_there(received, 1, cpu()));
  EXPECT_EQ(packed_view(*received)->storage.origin(), Origin::here);
  const auto last = third.wait(kPatience);
  ASSERT_TRUE(succeeds(last));
  EXPECT_EQ((*last)["n"].device(), kGpu0);
}

TEST_P(AsyncGpuReceive, AMessageWaitsForMemoryThatAStreamStillReads) {
  PipePair pair = connect({}, {.device_cap_bytes = 32 * kMebi});
  const auto stream = make_stream();
  const RecvOptions options{.device = kGpu0, .stream = stream};
  for (const std::uint64_t seed : {1u, 2u})
    ASSERT_TRUE(succeeds(pair.client.send(patterned(seed, 20 * kMebi), kPatience)));
  {
    const Gate gate(fake, stream);
    // The receive waits for no work of this stream, and a kernel of it may read the batch to the
    // end.
    auto first = pair.server.recv_async(options).wait(kPatience);
    ASSERT_TRUE(lies_there(first, 1));
    first = TensorDict();
    EXPECT_TRUE(fails_with(pair.server.recv_async(options).wait(kPatience),
                           ErrorCode::resource_exhausted, "device_cap_bytes"));
  }
  auto second = pair.server.recv_async(options).wait(kPatience);
  while (!second && second.error().code == ErrorCode::resource_exhausted)
    second = pair.server.recv_async(options).wait(kPatience);
  EXPECT_TRUE(lies_there(second, 2));
}

TEST_P(AsyncGpuReceive, AStreamOfAnotherGpuIsRefused) {
  PipePair pair = connect();
  const auto stream = make_stream(kGpu1);
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, kSmall), kPatience)));
  const std::uint64_t before = copies();
  EXPECT_TRUE(
      fails_with(pair.server.recv_async({.device = kGpu0, .stream = stream}).wait(kPatience),
                 ErrorCode::invalid_argument, "another context"));
  EXPECT_EQ(copies(), before);
  EXPECT_TRUE(lies_there(
      pair.server.recv_async({.device = kGpu1, .stream = stream}).wait(kPatience), 1, kGpu1));
}

TEST_P(AsyncGpuReceive, ACopyThatFailsLeavesTheMessage) {
  PipePair pair = connect();
  auto failing = pair.server.recv_async({.device = kGpu0});
  auto next = pair.server.recv_async({.device = cpu()});
  constexpr int kOutOfMemory = 2;
  fake.fail("cuMemcpyAsync", kOutOfMemory, 0);
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, kLarge), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.send(numbered(2), kPatience)));
  EXPECT_TRUE(fails_with(failing.wait(kPatience), ErrorCode::resource_exhausted, "cuMemcpyAsync"));
  fake.fail("cuMemcpyAsync", 0, 0);
  EXPECT_TRUE(lies_there(next.wait(kPatience), 1, cpu()));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
}

// Ends while a copy is under way

TEST_P(AsyncGpuReceive, WhatIsCancelledOnItsWayIsTheNextMessageAgain) {
  PipePair pair = connect();
  for (const bool is_dropped : {false, true}) {
    const Gate gate(fake, own_stream());
    const std::uint64_t before = copies();
    auto posted =
        std::make_unique<Completion<TensorDict>>(pair.server.recv_async({.device = kGpu0}));
    ASSERT_TRUE(succeeds(pair.client.send(patterned(1, kLarge), kPatience)));
    ASSERT_TRUE(succeeds(pair.client.send(numbered(2), kPatience)));
    ASSERT_TRUE(is_under_way(pair, before));
    if (!is_dropped) {
      posted->cancel();
      EXPECT_TRUE(fails_with(posted->wait(kPatience), ErrorCode::cancelled, "on the way to a GPU"));
    }
    posted.reset();
    const auto received = pair.server.recv({.device = cpu()}, kPatience);
    EXPECT_TRUE(lies_there(received, 1, cpu()));
    EXPECT_EQ(packed_view(*received)->storage.origin(), Origin::here) << "the peer has its slot";
    EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
  }
}

TEST_P(AsyncGpuReceive, WhatIsCancelledOnItsWayGoesToTheNextReceive) {
  PipePair pair = connect();
  auto gate = std::make_unique<Gate>(fake, own_stream());
  const std::uint64_t before = copies();
  auto first = pair.server.recv_async({.device = kGpu0});
  auto second = pair.server.recv_async({.device = cpu()});
  auto third = pair.server.recv_async({.device = kGpu0});
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, kLarge), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.send(patterned(2, kSmall), kPatience)));
  ASSERT_TRUE(is_under_way(pair, before));
  first.cancel();
  EXPECT_TRUE(lies_there(second.wait(kPatience), 1, cpu()));
  gate.reset();
  EXPECT_TRUE(lies_there(third.wait(kPatience), 2));
}

TEST_P(AsyncGpuReceive, ASlotIsNotUsedAgainWhileAPieceOfTheGpuIsOnItsWay) {
  PipePair pair = connect();
  TensorDict other;
  {
    const Gate gate(fake, own_stream());
    auto posted = pair.server.recv_async({.device = kGpu0});
    constexpr int kOutOfMemory = 2;
    fake.fail("cuMemcpyAsync", kOutOfMemory, copies() + 2);  // the second piece
    ASSERT_TRUE(succeeds(pair.client.send(patterned(1, kLarge), kPatience)));
    EXPECT_TRUE(fails_with(posted.wait(kPatience), ErrorCode::resource_exhausted));
    fake.fail("cuMemcpyAsync", 0, 0);
    for (int i = 0; i < 20; ++i) settle();
    ASSERT_TRUE(succeeds(pair.client.send(patterned(2, kLarge), kPatience)));
    EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 1, kLarge));
    auto received = pair.server.recv({.device = kGpu0}, kPatience);
    ASSERT_TRUE(succeeds(received));
    other = *std::move(received);
    synchronize(kGpu0, kStreamPerThread);
  }
  synchronize(kGpu0, own_stream());
  EXPECT_TRUE(lies_there(other, 2));
}

TEST_P(AsyncGpuReceive, ADroppedResultIsTheNextMessageAgain) {
  PipePair pair = connect();
  for (const bool goes_back : {true, false}) {
    auto posted = pair.server.recv_async();
    ASSERT_TRUE(succeeds(pair.client.send(there(1, kSmall), kPatience)));
    ASSERT_TRUE(posted.done_by(kPatience));
    if (goes_back) std::move(posted).give_back();
  }
  EXPECT_TRUE(lies_there(pair.server.recv_async().wait(kPatience), 1));
  EXPECT_TRUE(lies_there(pair.server.recv_async({.device = kGpu0}).wait(kPatience), 1));
}

TEST_P(AsyncGpuReceive, EndsOfThePipeLeaveTheCopyToEnd) {
  const std::vector<std::function<void(PipePair&)>> ends = {
      [](PipePair& pair) { (void)pair.server.close(kPatience); },
      [](PipePair& pair) { pair.server.cancel(); },
      [](PipePair& pair) { const Pipe dropped = std::move(pair.server); },
      [](PipePair& pair) { pair.client.cancel(); },
      [](PipePair& pair) { EXPECT_TRUE(succeeds(pair.client_context.close(kPatience))); }};
  for (const auto& end : ends) {
    ASSERT_TRUE(is_released());
    PipePair pair = connect();
    auto gate = std::make_unique<Gate>(fake, own_stream());
    const std::uint64_t before = copies();
    auto posted = pair.server.recv_async({.device = kGpu0});
    auto next = pair.server.recv_async();
    ASSERT_TRUE(succeeds(pair.client.send(patterned(1, kSmall), kPatience)));
    ASSERT_TRUE(is_under_way(pair, before));
    end(pair);
    EXPECT_FALSE(posted.done());
    gate.reset();
    EXPECT_TRUE(lies_there(posted.wait(kPatience), 1));
    const auto none = next.wait(kPatience);
    ASSERT_FALSE(none);
    EXPECT_NE(none.error().code, ErrorCode::timeout);
  }
}

TEST_P(AsyncGpuReceive, ContextsThatCloseEndItAndTakeNothingFromTheGpu) {
  auto gate = std::make_unique<Gate>(fake, own_stream());
  {
    PipePair pair = connect();
    const std::uint64_t before = copies();
    auto posted = pair.server.recv_async({.device = kGpu0});
    auto next = pair.server.recv_async({.device = kGpu1});
    ASSERT_TRUE(succeeds(pair.client.send(patterned(1, kLarge), kPatience)));
    ASSERT_TRUE(is_under_way(pair, before));
    (void)pair.server_context.close(kPatience);
    EXPECT_TRUE(fails_with(posted.wait(kPatience), ErrorCode::context_closed));
    EXPECT_TRUE(fails_with(next.wait(kPatience), ErrorCode::context_closed));
  }
  // The copy has memory to write to, or the double would lose the context.
  gate.reset();
  synchronize(kGpu0, own_stream());
  EXPECT_TRUE(is_released());
}

}  // namespace
}  // namespace tendon::test
