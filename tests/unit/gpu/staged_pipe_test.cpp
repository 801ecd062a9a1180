// SPDX-License-Identifier: Apache-2.0
// Tensors on GPUs through pipes and host memory, on the double of the driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <thread>
#include <utility>

#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

Tensor pattern(std::uint64_t seed, std::int64_t size) {
  Tensor x = Tensor::empty(DType::u8, {size}).value();
  fill_pattern(x.mutable_bytes(), seed);
  return x;
}

class StagedPipe : public StagedGpuPipeTest {
 protected:
  /// A batch of one leaf `x` on a GPU.
  [[nodiscard]] TensorDict gpu_batch(std::uint64_t seed, std::int64_t size, Device device = kGpu0) {
    TensorDict batch;
    batch.set("x", on_gpu(pattern(seed, size), device));
    return batch;
  }
  testing::AssertionResult holds(const Tensor& x, std::uint64_t seed) {
    if (has_pattern(x.bytes(), seed)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "another content than that of " << seed;
  }
};
TENDON_ON_EVERY_WAY(StagedPipe);

TEST_P(StagedPipe, ABatchArrivesOnTheSameGpu) {
  PipePair pair = connect();
  for (const Device device : {kGpu0, kGpu1}) {
    for (const std::int64_t size : {1, 100, 4096, 100'000, 3'000'000}) {
      const auto seed = static_cast<std::uint64_t>(size);
      ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(seed, size, device), kPatience)));
      const auto received = pair.server.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      const Tensor x = (*received)["x"];
      ASSERT_EQ(x.device(), device) << size;
      EXPECT_EQ(x.storage().access(), Access::read_write);
      EXPECT_TRUE(holds(read(x), seed)) << size;
    }
  }
  EXPECT_EQ(pair.client.stats().copies_d2h, 10u);
  EXPECT_EQ(pair.server.stats().copies_h2d, 10u);
  EXPECT_GE(pair.client.stats().bytes_d2h, 2 * 3'104'197u);
  EXPECT_EQ(pair.server.stats().bytes_h2d, pair.client.stats().bytes_d2h);
  EXPECT_EQ(pair.client.stats().loans_sent, 0u);
  EXPECT_EQ(pair.client.stats().schemas_announced, 10u);
  const auto paths = pair.client.device_paths();
  ASSERT_EQ(paths.size(), 2u);
  for (const auto& each : paths) {
    EXPECT_FALSE(each.is_direct);
    EXPECT_NE(each.reason.find(way().is_shm() ? "device_path" : "tcp"), std::string::npos)
        << each.reason;
  }
}

TEST_P(StagedPipe, HostLeavesAndValuesStayInHostMemory) {
  PipePair pair = connect();
  for (const std::int64_t size : {10, 200'000}) {
    TensorDict batch(Shape{2});
    batch.set("image", on_gpu(pattern(1, 2 * size).reshape({2, size}).value()));
    batch.set("state/joints", Tensor::of<double>({2}, {1.5, -0.0}));
    batch.set("state/depth", on_gpu(pattern(2, 2 * size).reshape({2, size}).value()));
    batch.set("weights", on_gpu(pattern(3, size)), Batching::exempt);
    batch.set("info/name", "a/b");
    ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
    const auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_EQ(*received->schema(), *batch.schema());
    EXPECT_EQ(received->value("info/name").as_string(), "a/b");
    EXPECT_TRUE(bitwise_equal((*received)["state/joints"], batch["state/joints"]));
    EXPECT_EQ((*received)["state/joints"].device(), cpu());
    for (const auto& [path, seed] : {std::pair{"image", 1}, {"state/depth", 2}, {"weights", 3}}) {
      ASSERT_EQ((*received)[path].device(), kGpu0) << path;
      EXPECT_TRUE(holds(read((*received)[path]), static_cast<std::uint64_t>(seed))) << path;
    }
  }
}

TEST_P(StagedPipe, APackedBatchOfAGpuTravelsByOneCopyEachWay) {
  PipePair pair = connect();
  TensorDict host;
  for (int i = 0; i < 100; ++i) host.set("leaf" + std::to_string(i), pattern(7, 1000));
  const TensorDict batch = packed_on_gpu(host);
  const std::uint64_t before = fake.calls("cuMemcpyAsync");
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ(fake.calls("cuMemcpyAsync") - before, 2u);
  ASSERT_NE(packed_view(*received), nullptr);
  EXPECT_EQ(packed_view(*received)->storage.device(), kGpu0);
  EXPECT_TRUE(holds(read((*received)["leaf99"]), 7));
}

TEST_P(StagedPipe, ZeroBytesArriveOnTheGpuToo) {
  PipePair pair = connect();
  TensorDict batch;
  batch.set("none", on_gpu(Tensor::empty(DType::f32, {0, 3}).value()));
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ((*received)["none"].device(), kGpu0);
  EXPECT_EQ((*received)["none"].shape(), Shape({0, 3}));
}

TEST_P(StagedPipe, TheReceiverChoosesTheDevice) {
  PipePair pair = connect();
  for (const std::int64_t size : {64, 1'000'000}) {
    for (const Device from : {cpu(), kGpu0, kGpu1}) {
      for (const Device to : {cpu(), kGpu0, kGpu1}) {
        TensorDict batch;
        const Tensor host = pattern(5, size);
        batch.set("x", from == cpu() ? host : on_gpu(host, from));
        batch.set("on_host", Tensor::of<float>({2}, {1, 2}));
        ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
        const auto received = pair.server.recv({.device = to}, kPatience);
        ASSERT_TRUE(succeeds(received));
        for (const auto& [path, leaf] : *received) ASSERT_EQ(leaf.device(), to) << path;
        const Tensor x = (*received)["x"];
        EXPECT_TRUE(holds(to == cpu() ? x : read(x), 5)) << from << " to " << to;
      }
    }
  }
}

TEST_P(StagedPipe, OneSchemaInTwoPlacesIsTwoAnnouncements) {
  PipePair pair = connect();
  for (int round = 0; round < 3; ++round) {
    for (const Device device : {cpu(), kGpu0, kGpu1}) {
      TensorDict batch;
      const Tensor host = pattern(9, 500);
      batch.set("x", device == cpu() ? host : on_gpu(host, device));
      ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
      const auto received = pair.server.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      ASSERT_EQ((*received)["x"].device(), device);
    }
  }
  EXPECT_EQ(pair.client.stats().schemas_announced, 3u);
}

// Streams

TEST_P(StagedPipe, ASendReadsBehindTheWorkOfItsStream) {
  PipePair pair = connect();
  const auto stream = make_stream();
  TensorDict batch = gpu_batch(1, 100'000);
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
                      static_cast<std::byte*>(what.fake.writes(what.address, 100'000));
                  fill_pattern({bytes, 100'000}, 2);
                },
                &rewrite),
            0);
  std::thread sender(
      [&] { EXPECT_TRUE(succeeds(pair.client.send(batch, kPatience, {.stream = stream}))); });
  EXPECT_TRUE(fails_with(pair.server.recv(10ms), ErrorCode::timeout));
  gate.open();
  const auto received = pair.server.recv(kPatience);
  sender.join();
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(holds(read((*received)["x"]), 2));
}

TEST_P(StagedPipe, AReceiveIsInTheOrderOfItsStream) {
  PipePair pair = connect();
  const auto stream = make_stream();
  Gate gate(fake, stream);
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 100'000), kPatience)));
  const auto received = pair.server.recv({.stream = stream}, kPatience);
  ASSERT_TRUE(succeeds(received));  // although the stream has other work to do
  gate.open();
  synchronize(kGpu0, stream);
  EXPECT_TRUE(holds(at_once((*received)["x"]), 1));
}

TEST_P(StagedPipe, WhatIsReceivedKeepsItsMemoryUntilTheStreamHasReadIt) {
  PipePair pair = connect({}, {.device_cap_bytes = 32 * kMiB});
  const auto stream = make_stream();
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 20 * kMiB), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.send(patterned(2, 20 * kMiB), kPatience)));
  auto first = pair.server.recv({.device = kGpu0, .stream = stream}, kPatience);
  ASSERT_TRUE(succeeds(first));
  Gate gate(fake, stream);
  first = TensorDict();  // a kernel of the stream may still read it
  EXPECT_TRUE(fails_with(pair.server.recv({.device = kGpu0, .stream = stream}, kPatience),
                         ErrorCode::resource_exhausted, "device_cap_bytes"));
  gate.open();
  // The message stayed in the pipe.
  auto second = pair.server.recv({.device = kGpu0, .stream = stream}, kPatience);
  while (!second && second.error().code == ErrorCode::resource_exhausted)
    second = pair.server.recv({.device = kGpu0, .stream = stream}, kPatience);
  ASSERT_TRUE(succeeds(second));
  synchronize(kGpu0, stream);
  EXPECT_TRUE(holds(at_once((*second)["x"]), 2));
}

TEST_P(StagedPipe, ASendWhoseStreamIsStuckTimesOutAndDeliversNothing) {
  PipePair pair = connect();
  const auto stream = make_stream();
  for (const std::int64_t size : {100, 1'000'000}) {
    Gate gate(fake, stream);
    EXPECT_TRUE(fails_with(pair.client.send(gpu_batch(1, size), 20ms, {.stream = stream}),
                           ErrorCode::timeout, "nothing was delivered"));
    EXPECT_TRUE(fails_with(pair.server.recv(0s), ErrorCode::timeout));
    // Another stream is free, and so is host memory.
    ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(2, size), kPatience)));
    ASSERT_TRUE(succeeds(pair.client.send(numbered(3), kPatience)));
    const auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(holds(read((*received)["x"]), 2));
    EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 3);
  }
}

TEST_P(StagedPipe, AStreamThatIsCapturedIsRefusedBeforeAnythingIsEnqueued) {
  PipePair pair = connect();
  const auto stream = make_stream();
  const TensorDict batch = gpu_batch(1, 100'000);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  {
    const auto gpu = program.gpu(0);
    const cuda::PrimaryContext::Current current(*gpu->context());
    ASSERT_EQ(fake.begin_capture(stream, 2), 0);
  }
  const std::uint64_t before = fake.calls("cuMemcpyAsync");
  EXPECT_TRUE(fails_with(pair.client.send(batch, kPatience, {.stream = stream}),
                         ErrorCode::invalid_argument, "captur"));
  EXPECT_TRUE(fails_with(pair.server.recv({.device = kGpu1, .stream = stream}, kPatience),
                         ErrorCode::invalid_argument));
  EXPECT_TRUE(fails_with(pair.server.recv({.stream = stream}, kPatience),
                         ErrorCode::invalid_argument, "captur"));
  EXPECT_EQ(fake.calls("cuMemcpyAsync"), before);
  {
    const auto gpu = program.gpu(0);
    const cuda::PrimaryContext::Current current(*gpu->context());
    std::size_t captured = 1;
    EXPECT_EQ(fake.end_capture(stream, &captured), 0);
    EXPECT_EQ(captured, 0u);
  }
  EXPECT_TRUE(succeeds(pair.server.recv({.stream = stream}, kPatience)));
}

// Messages that cannot be sent or received

TEST_P(StagedPipe, LeavesOfTwoGpusAndLeavesWithGapsAreRefused) {
  PipePair pair = connect();
  TensorDict two;
  two.set("a", on_gpu(pattern(1, 10), kGpu0));
  two.set("b", on_gpu(pattern(1, 10), kGpu1));
  EXPECT_TRUE(fails_with(pair.client.send(two, kPatience), ErrorCode::unsupported_device,
                         "'a' is on cuda:0 and leaf 'b' on cuda:1"));
  TensorDict gaps;
  const Tensor square = on_gpu(pattern(1, 100).reshape({10, 10}).value());
  gaps.set("columns", square.transpose(0, 1).value());
  EXPECT_TRUE(fails_with(pair.client.send(gaps, kPatience), ErrorCode::not_contiguous, "columns"));
  EXPECT_TRUE(fails_with(pair.client.send_async(gaps).wait(kPatience), ErrorCode::not_contiguous));
  EXPECT_TRUE(fails_with(pair.server.recv(0s), ErrorCode::timeout));
}

TEST_P(StagedPipe, AGpuThatIsNotThereIsRefusedAndTheMessageStays) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 1000), kPatience)));
  EXPECT_TRUE(fails_with(pair.server.recv({.device = Device{DeviceKind::cuda, 7}}, kPatience),
                         ErrorCode::unsupported_device, "cuda:7"));
  EXPECT_TRUE(fails_with(pair.server.recv({.device = Device{DeviceKind::rocm, 0}}, kPatience),
                         ErrorCode::unsupported_device, "rocm:0"));
  EXPECT_TRUE(fails_with(pair.server.recv(RecvMode::view_only, kPatience), ErrorCode::no_credit,
                         "host memory"));
  EXPECT_TRUE(succeeds(pair.server.recv({.device = cpu()}, kPatience)));
}

TEST_P(StagedPipe, AnOlderPeerGetsNoneAndHostTensorsGoOn) {
  PipePair pair = connect({}, {.protocol_minor = 1});
  EXPECT_TRUE(fails_with(pair.client.send(gpu_batch(1, 1000), kPatience),
                         ErrorCode::unsupported_device, "older"));
  ASSERT_TRUE(succeeds(pair.client.send(numbered(3), kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 3);
}

// Other ways to send and to receive

TEST_P(StagedPipe, RecvIntoHostLeavesTakesThemFromAGpu) {
  PipePair pair = connect();
  for (const std::int64_t size : {100, 1'000'000}) {
    TensorDict into;
    into.set("x", Tensor::zeros(DType::u8, {size}).value());
    ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(4, size), kPatience)));
    ASSERT_TRUE(succeeds(pair.server.recv_into(into, kPatience)));
    EXPECT_TRUE(holds(into["x"], 4));
  }
}

TEST_P(StagedPipe, RecvIntoFillsLeavesOnAGpu) {
  PipePair pair = connect();
  for (const std::int64_t size : {100, 1'000'000}) {
    TensorDict into;
    into.set("x", on_gpu(pattern(0, size), kGpu1));
    into.set("info/joints", Tensor::zeros(DType::f64, {2}).value());
    for (const Device from : {cpu(), kGpu0}) {
      TensorDict batch;
      const Tensor host = pattern(6, size);
      batch.set("x", from == cpu() ? host : on_gpu(host, from));
      batch.set("info/joints", Tensor::of<double>({2}, {1, 2}));
      batch.set("info/step", 7);
      ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
      ASSERT_TRUE(succeeds(pair.server.recv_into(into, kPatience)));
      EXPECT_TRUE(holds(read(into["x"]), 6));
      EXPECT_TRUE(bitwise_equal(into["info/joints"], batch["info/joints"]));
      EXPECT_EQ(into.value("info/step").as_i64(), 7);
      into.set("x", on_gpu(pattern(0, size), kGpu1));
    }
  }
  EXPECT_EQ(pair.server.stats().copies_h2d, 4u);
  EXPECT_TRUE(fails_with(pair.server.give_back_from(TensorDict()), ErrorCode::invalid_argument));
}

TEST_P(StagedPipe, WhatCannotBeReceivedIntoAGpuStays) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(patterned(3, 1000), kPatience)));
  TensorDict other;
  other.set("y", on_gpu(pattern(0, 1000)));
  EXPECT_TRUE(fails_with(pair.server.recv_into(other, kPatience), ErrorCode::schema_mismatch, "y"));
  TensorDict two;
  two.set("a", on_gpu(pattern(0, 10), kGpu0));
  two.set("b", on_gpu(pattern(0, 10), kGpu1));
  EXPECT_TRUE(
      fails_with(pair.server.recv_into(two, kPatience), ErrorCode::unsupported_device, "cuda:1"));
  const Tensor square = on_gpu(pattern(0, 100).reshape({10, 10}).value());
  TensorDict gaps;
  gaps.set("x", square.transpose(0, 1).value());
  EXPECT_TRUE(fails_with(pair.server.recv_into(gaps, kPatience), ErrorCode::not_contiguous, "x"));
  TensorDict locked;
  locked.set(
      "x",
      Tensor::view(on_gpu(pattern(0, 1000)).storage().read_only(), 0, DType::u8, {1000}).value());
  EXPECT_TRUE(fails_with(pair.server.recv_into(locked, kPatience), ErrorCode::read_only, "x"));
  EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 3, 1000));
}

TEST_P(StagedPipe, RecvMessageDeliversToTheGpu) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(4, 1000), kPatience)));
  const auto message = pair.server.recv_message(kPatience);
  ASSERT_TRUE(succeeds(message));
  ASSERT_TRUE(message->tensors.has_value());
  EXPECT_EQ((*message->tensors)["x"].device(), kGpu0);
}

TEST_P(StagedPipe, AnAsynchronousSendIsDoneWhenItsGpuHasMadeIt) {
  PipePair pair = connect();
  const auto stream = make_stream();
  for (const std::int64_t size : {100, 1'000'000}) {
    Gate gate(fake, stream);
    auto first = pair.client.send_async(gpu_batch(1, size), {.stream = stream});
    auto second = pair.client.send_async(numbered(2));
    EXPECT_TRUE(fails_with(first.wait(10ms), ErrorCode::timeout));
    EXPECT_TRUE(fails_with(pair.server.recv(0s), ErrorCode::timeout)) << "in their order";
    gate.open();
    EXPECT_TRUE(succeeds(first.wait(kPatience)));
    EXPECT_TRUE(succeeds(second.wait(kPatience)));
    const auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(holds(read((*received)["x"]), 1));
    EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
  }
}

TEST_P(StagedPipe, ACancelledSendIsNotDeliveredAndItsMemoryStaysForTheGpu) {
  PipePair pair = connect();
  const auto stream = make_stream();
  {
    Gate gate(fake, stream);
    auto sent = pair.client.send_async(gpu_batch(1, 1'000'000), {.stream = stream});
    sent.cancel();
    EXPECT_TRUE(fails_with(sent.wait(kPatience), ErrorCode::cancelled));
  }
  ASSERT_TRUE(succeeds(pair.client.send(numbered(2), kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
}

TEST_P(StagedPipe, CloseWaitsForWhatAGpuHasToMakeFirst) {
  PipePair pair = connect();
  const auto stream = make_stream();
  Gate gate(fake, stream);
  auto sent = pair.client.send_async(gpu_batch(1, 1000), {.stream = stream});
  EXPECT_TRUE(fails_with(pair.client.flush(10ms), ErrorCode::timeout));
  gate.open();
  EXPECT_TRUE(succeeds(pair.client.flush(kPatience)));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(holds(read((*received)["x"]), 1));
}

TEST_P(StagedPipe, ABatchThatIsGivenBackIsTheNextOneAgain) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(1, 1000), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.send(numbered(2), kPatience)));
  auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  pair.server.give_back(Message{.tag = 0, .header = {}, .tensors = *received, .bytes = {}});
  TensorDict into;
  into.set("x", Tensor::zeros(DType::u8, {1000}).value());
  EXPECT_TRUE(
      fails_with(pair.server.recv_into(into, kPatience), ErrorCode::unsupported_device, "cuda:0"));
  EXPECT_TRUE(
      fails_with(pair.server.recv({.device = cpu()}, kPatience), ErrorCode::unsupported_device));
  EXPECT_TRUE(
      fails_with(pair.server.recv({.device = kGpu1}, kPatience), ErrorCode::unsupported_device));
  received = pair.server.recv({.device = kGpu0}, kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(holds(read((*received)["x"]), 1));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
}

TEST_P(StagedPipe, BothDirectionsAtOnceForManyMessages) {
  PipePair pair = connect();
  constexpr int kMessages = 50;
  const auto run = [&](Pipe& pipe, std::uint64_t seed) {
    for (int i = 0; i < kMessages; ++i) {
      ASSERT_TRUE(
          succeeds(pipe.send(gpu_batch(seed + static_cast<std::uint64_t>(i), 20'000), kPatience)));
      const auto received = pipe.recv(kPatience);
      ASSERT_TRUE(succeeds(received));
      ASSERT_TRUE(holds(read((*received)["x"]), 1000 - seed + static_cast<std::uint64_t>(i)));
    }
  };
  std::thread other([&] { run(pair.server, 900); });
  run(pair.client, 100);
  other.join();
}

// Faults that a review found

TEST_P(StagedPipe, GapsBetweenLeavesAreZero) {
  PipePair pair = connect();
  for (const std::int64_t size : {3, 20'001}) {
    TensorDict tree;
    for (const char* name : {"a", "b", "c"}) tree.set(name, pattern(200, size));
    const std::uint64_t total = tree.schema()->layout(Layout::aligned).total_bytes;
    Tensor filled = Tensor::empty(DType::u8, {static_cast<std::int64_t>(total)}).value();
    std::ranges::fill(filled.mutable_bytes(), std::byte{0xee});
    const TensorDict packed =
        make_packed(tree.schema(), Layout::aligned, on_gpu(filled).storage()).value();
    TensorDict mixed;
    mixed.set("a", on_gpu(pattern(200, size)));
    mixed.set("b", pattern(200, size));
    mixed.set("c", on_gpu(pattern(200, size)));
    for (const TensorDict& batch : {packed, mixed}) {
      for (const bool queued : {false, true}) {
        if (queued)
          ASSERT_TRUE(succeeds(pair.client.send_async(batch).wait(kPatience)));
        else
          ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
        const auto received = pair.server.recv({.device = cpu()}, kPatience);
        ASSERT_TRUE(succeeds(received));
        const PackedView& view = *packed_view(*received);
        const auto& layout = view.schema->layout(Layout::aligned);
        for (std::size_t leaf = 0; leaf + 1 < 3; ++leaf) {
          const std::uint64_t end = layout.offsets[leaf] + static_cast<std::uint64_t>(size);
          for (std::uint64_t at = end; at < layout.offsets[leaf + 1]; ++at)
            ASSERT_EQ(view.storage.data()[at], std::byte{0}) << at;
        }
      }
    }
  }
}

TEST_P(StagedPipe, LeavesOfOtherLayoutsAreAlignedOnTheGpu) {
  PipePair pair = connect();
  TensorDict batch;
  batch.set("b", pattern(1, 3));
  batch.set("c", Tensor::of<double>({3}, {1, 2, 3}));
  batch.set("d", pattern(2, 9'000));
  ASSERT_TRUE(succeeds(pair.client.send(packed_copy(batch, Layout::tensordict), kPatience)));
  const auto received = pair.server.recv({.device = kGpu0}, kPatience);
  ASSERT_TRUE(succeeds(received));
  for (const auto& [path, leaf] : *received) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(leaf.data()) % 64, 0u) << path;
    EXPECT_TRUE(bitwise_equal(read(leaf), batch[path])) << path;
  }
}

TEST_P(StagedPipe, AMessageThatReturnsKeepsItsPlace) {
  PipePair pair = connect();
  TensorDict into;
  into.set("x", Tensor::zeros(DType::u8, {3'000'000}).value());
  ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(4, 3'000'000), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv_into(into, kPatience)));
  ASSERT_TRUE(succeeds(pair.server.give_back_from(into)));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_EQ((*received)["x"].device(), kGpu0);
  EXPECT_TRUE(holds(read((*received)["x"]), 4));
}

TEST_P(StagedPipe, AMessageThatFailedKeepsItsTurnAndNoSlotOfThePeer) {
  PipePair pair = connect({}, {.device_cap_bytes = 4 * kMiB});
  pair.server.give_back(
      Message{.tag = 0, .header = {}, .tensors = patterned(1, 5 * kMiB), .bytes = {}});
  pair.server.give_back(Message{.tag = 0, .header = {}, .tensors = numbered(2), .bytes = {}});
  ASSERT_TRUE(succeeds(pair.client.send(patterned(3, 5 * kMiB), kPatience)));
  EXPECT_TRUE(fails_with(pair.server.recv({.device = kGpu0}, kPatience),
                         ErrorCode::message_too_large, "device_cap_bytes"));
  EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 1, 5 * kMiB));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
  EXPECT_TRUE(
      fails_with(pair.server.recv({.device = kGpu0}, kPatience), ErrorCode::message_too_large));
  const auto last = pair.server.recv({.mode = RecvMode::copy, .device = cpu()}, kPatience);
  ASSERT_TRUE(succeeds(last));
  EXPECT_TRUE(is_patterned(*last, 3, 5 * kMiB));
  EXPECT_EQ(packed_view(*last)->storage.origin(), Origin::here);
}

TEST_P(StagedPipe, ASendTakesNoSlotThatAQueuedOneNeeds) {
  PipePair pair = connect({.link_cap_bytes = 8 * kMiB}, {.link_cap_bytes = 8 * kMiB});
  const auto stream = make_stream();
  auto gate = std::make_unique<Gate>(fake, stream);
  auto first = pair.client.send_async(gpu_batch(1, 6 * kMiB), {.stream = stream});
  std::thread sender(
      [&] { EXPECT_TRUE(succeeds(pair.client.send(gpu_batch(2, 6 * kMiB), kPatience))); });
  gate.reset();
  for (const std::uint64_t seed : {1u, 2u}) {
    const auto received = pair.server.recv({.device = cpu()}, kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(holds((*received)["x"], seed));
  }
  sender.join();
  EXPECT_TRUE(succeeds(first.wait(kPatience)));
}

TEST_P(StagedPipe, ASendThatWaitsForTheGpuEndsWithItsPipe) {
  PipePair pair = connect();
  const auto stream = make_stream();
  const Gate gate(fake, stream);
  const TensorDict batch = gpu_batch(1, 100'000);
  std::promise<void> begins;
  std::thread sender([&] {
    begins.set_value();
    const auto sent = pair.client.send(batch, Deadline::never(), {.stream = stream});
    EXPECT_FALSE(sent);
    EXPECT_NE(sent.error().code, ErrorCode::timeout);
  });
  begins.get_future().wait();
  pair.server.cancel();
  sender.join();
}

TEST_P(StagedPipe, WhatIsBehindACancelledSendGoesOn) {
  PipePair pair = connect();
  const auto stream = make_stream();
  const Gate gate(fake, stream);
  auto head = pair.client.send_async(gpu_batch(1, 100'000), {.stream = stream});
  auto next = pair.client.send_async(numbered(2));
  head.cancel();
  EXPECT_TRUE(succeeds(next.wait(kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 2);
}

}  // namespace
}  // namespace tendon::test
