// SPDX-License-Identifier: Apache-2.0
// Batches of many small tensors on a GPU: they are gathered there before they are copied.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "channel/to_host.hpp"
#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using v0::detail::copies_to_host;
using v0::detail::CopiesToHost;
using v0::detail::kLargeLeafBytes;

Tensor numbered_bytes(std::uint64_t seed, std::int64_t size) {
  Tensor x = Tensor::empty(DType::u8, {size}).value();
  fill_pattern(x.mutable_bytes(), seed);
  return x;
}

/// Leaves "a", "b" and so on, in the order of the list.
TensorDict leaves_of(const std::vector<std::int64_t>& sizes, std::uint64_t seed) {
  TensorDict batch;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    batch.set(std::string(1, static_cast<char>('a' + i)), numbered_bytes(seed + i, sizes[i]));
  return batch;
}

TensorDict hundred_leaves(std::uint64_t seed, std::int64_t size = 1024) {
  TensorDict batch;
  for (std::uint64_t i = 0; i < 100; ++i)
    batch.set("leaf" + std::to_string(i), numbered_bytes(seed + i, size));
  return batch;
}

class GatheredPipe : public StagedGpuPipeTest {
 protected:
  [[nodiscard]] TensorDict all_on_gpu(const TensorDict& host) {
    TensorDict batch;
    for (const auto& [path, leaf] : host) batch.set(path, on_gpu(leaf));
    return batch;
  }
  enum class How : std::uint8_t { now, queued };
  /// The batch as it arrives in host memory; `launches` and `copies` count the calls of the GPU.
  [[nodiscard]] TensorDict deliver(PipePair& pair, const TensorDict& batch, How how) {
    launches = fake.calls("cuLaunchKernel");
    copies = fake.calls("cuMemcpyAsync");
    if (how == How::queued)
      EXPECT_TRUE(succeeds(pair.client.send_async(batch).wait(kPatience)));
    else
      EXPECT_TRUE(succeeds(pair.client.send(batch, kPatience)));
    launches = fake.calls("cuLaunchKernel") - launches;
    copies = fake.calls("cuMemcpyAsync") - copies;
    auto received = pair.server.recv({.mode = RecvMode::copy, .device = cpu()}, kPatience);
    EXPECT_TRUE(succeeds(received));
    return received ? *received : TensorDict();
  }
  static testing::AssertionResult are_equal(const TensorDict& received, const TensorDict& host) {
    for (const auto& [path, leaf] : host)
      if (!received.contains(path) || !bitwise_equal(received[path], leaf))
        return testing::AssertionFailure() << "another " << path;
    return testing::AssertionSuccess();
  }

  std::uint64_t launches = 0;
  std::uint64_t copies = 0;
};
TENDON_ON_EVERY_WAY(GatheredPipe);

TEST_P(GatheredPipe, AHundredSmallLeavesAreOneLaunchAndOneCopy) {
  PipePair pair = connect();
  std::uint64_t seed = 0;
  for (const How how : {How::now, How::queued, How::now}) {
    const TensorDict host = hundred_leaves(++seed);
    EXPECT_TRUE(are_equal(deliver(pair, all_on_gpu(host), how), host));
    EXPECT_EQ(launches, 1u);
    EXPECT_EQ(copies, 1u);
  }
  EXPECT_EQ(pair.client.stats().copies_d2h, 3u);
  EXPECT_EQ(pair.client.stats().bytes_d2h, 3 * 100 * 1024u);
}

TEST_P(GatheredPipe, ItArrivesOnTheGpuToo) {
  PipePair pair = connect();
  const TensorDict host = hundred_leaves(5, 999);
  ASSERT_TRUE(succeeds(pair.client.send(all_on_gpu(host), kPatience)));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  for (const auto& [path, leaf] : *received) {
    ASSERT_EQ(leaf.device(), kGpu0);
    ASSERT_TRUE(bitwise_equal(read(leaf), host[path])) << path;
  }
}

TEST_P(GatheredPipe, LargeLeavesAndThoseOfTheHostStayWhereTheyAre) {
  PipePair pair = connect();
  const auto large = static_cast<std::int64_t>(kLargeLeafBytes);
  //                               gathered  host alone  large  gathered, with an empty one
  const TensorDict host = leaves_of({3, large - 1, 50, 70, large, 1, 0, 300, 7}, 1);
  TensorDict batch = all_on_gpu(host);
  batch.set("c", host["c"]);
  for (const How how : {How::now, How::queued}) {
    EXPECT_TRUE(are_equal(deliver(pair, batch, how), host));
    EXPECT_EQ(launches, 1u);
    EXPECT_EQ(copies, 4u) << "two runs, the small one between, and the large one";
  }
}

TEST_P(GatheredPipe, WhatHasNoNeighbourIsNotGathered) {
  PipePair pair = connect();
  const auto large = static_cast<std::int64_t>(kLargeLeafBytes);
  const TensorDict host = leaves_of({3, large, 5, 2 * large, 0, 7}, 1);
  for (const How how : {How::now, How::queued}) {
    EXPECT_TRUE(are_equal(deliver(pair, all_on_gpu(host), how), host));
    EXPECT_EQ(launches, 0u);
    EXPECT_EQ(copies, 5u);
  }
}

TEST_P(GatheredPipe, GapsHaveNothingOfAnEarlierBatch) {
  PipePair pair = connect();
  const auto slot_user = all_on_gpu(leaves_of({30'000, 30'000, 3'000}, 200));
  const TensorDict host = leaves_of({3, 20'001, 1, 20'001, 5}, 1);
  const TensorDict batch = all_on_gpu(host);
  const auto& layout = host.schema()->layout(Layout::aligned);
  for (const How how : {How::now, How::queued}) {
    (void)deliver(pair, slot_user, how);
    const TensorDict received = deliver(pair, batch, how);
    EXPECT_TRUE(are_equal(received, host));
    ASSERT_NE(packed_view(received), nullptr);
    const Bytes bytes = packed_view(received)->storage.bytes();
    std::uint64_t end = 0;
    for (std::size_t leaf = 0; leaf < layout.offsets.size(); ++leaf) {
      for (std::uint64_t at = end; at < layout.offsets[leaf]; ++at)
        ASSERT_EQ(bytes[at], std::byte{0}) << at;
      end = layout.offsets[leaf] + host.schema()->leaves()[leaf].size_bytes;
    }
  }
}

TEST_P(GatheredPipe, WithoutRoomOnTheGpuEachLeafIsCopied) {
  PipePair pair = connect({.device_cap_bytes = std::uint64_t{1} << 20});
  const TensorDict host = hundred_leaves(3);
  for (const How how : {How::now, How::queued}) {
    EXPECT_TRUE(are_equal(deliver(pair, all_on_gpu(host), how), host));
    EXPECT_EQ(launches, 0u);
    EXPECT_EQ(copies, 100u);
  }
  EXPECT_EQ(pair.client.stats().copies_d2h, 2u);
}

TEST_P(GatheredPipe, ItReadsBehindTheWorkOfItsStream) {
  PipePair pair = connect();
  const auto stream = make_stream();
  const TensorDict before = hundred_leaves(1);
  const TensorDict after = hundred_leaves(1000);
  struct Rewrite {
    const CudaDouble& fake;
    const TensorDict& batch;
    const TensorDict& after;
    static void run(void* argument) {
      const auto& self = *static_cast<Rewrite*>(argument);
      for (const auto& [path, leaf] : self.after) {
        const auto address = reinterpret_cast<std::uint64_t>(self.batch[path].data());
        std::ranges::copy(leaf.bytes(),
                          static_cast<std::byte*>(self.fake.writes(address, leaf.size_bytes())));
      }
    }
  };
  for (const How how : {How::now, How::queued}) {
    const TensorDict batch = all_on_gpu(before);
    Rewrite rewrite{fake, batch, after};
    Gate gate(fake, stream);
    ASSERT_EQ(fake.launch(stream, &Rewrite::run, &rewrite), 0);
    std::thread sender([&] {
      if (how == How::queued)
        EXPECT_TRUE(succeeds(pair.client.send_async(batch, {.stream = stream}).wait(kPatience)));
      else
        EXPECT_TRUE(succeeds(pair.client.send(batch, kPatience, {.stream = stream})));
    });
    EXPECT_TRUE(fails_with(pair.server.recv(10ms), ErrorCode::timeout));
    gate.open();
    const auto received = pair.server.recv({.device = cpu()}, kPatience);
    sender.join();
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(are_equal(*received, after));
  }
}

TEST_P(GatheredPipe, ALaunchThatFailsFailsTheSend) {
  PipePair pair = connect();
  const TensorDict host = hundred_leaves(3);
  const TensorDict batch = all_on_gpu(host);
  fake.fail("cuLaunchKernel", static_cast<int>(cuda::Status::invalid_value), 0);
  EXPECT_TRUE(fails_with(pair.client.send(batch, kPatience), ErrorCode::system, "cuLaunchKernel"));
  EXPECT_TRUE(fails_with(pair.client.send_async(batch).wait(kPatience), ErrorCode::system));
  fake.fail("cuLaunchKernel", 0, 0);
  EXPECT_TRUE(are_equal(deliver(pair, batch, How::now), host));
}

class GatherPlan : public testing::Test, protected ProgramGpus {
 protected:
  GatherPlan() {
    for (const char* name : {"a", "b", "c"}) batch.set(name, on_gpu(numbered_bytes(1, 100)));
    room = Storage::allocate(batch.schema()->layout(Layout::aligned).total_bytes).value();
    pool = pools.of(program.gpu(0));
  }

  TensorDict batch;
  Storage room;
  cuda::DevicePools pools{std::uint64_t{1} << 26};
  std::shared_ptr<cuda::DevicePool> pool;
};

TEST_F(GatherPlan, TheSlotStaysUntilTheGpuHasReadIt) {
  const auto stream = make_stream();
  Gate gate(fake, stream);
  {
    auto work = cuda::StreamWork::begin(program.gpu(0), stream, "test").value();
    const CopiesToHost plan = copies_to_host(batch, room, *program.gpu(0), *pool, kPatience);
    ASSERT_TRUE(succeeds(plan.gather(work)));
  }
  EXPECT_NE(pool->stats().used_bytes, 0u);
  gate.open();
  EXPECT_TRUE(eventually([&] { return pool->stats().used_bytes == 0; }));
}

TEST_F(GatherPlan, WithoutTheKernelEachLeafIsCopied) {
  // Not the GPU object of the process, which may have the kernel already.
  cuda::Gpu gpu(program.gpu(0)->context(), *cuda::process_device_thread().value());
  fake.fail("cuModuleLoadData", static_cast<int>(cuda::Status::invalid_image), 0);
  const CopiesToHost refused = copies_to_host(batch, room, gpu, *pool, kPatience);
  fake.fail("cuModuleLoadData", 0, 0);
  EXPECT_TRUE(refused.pieces.empty());
  EXPECT_EQ(refused.copies.size(), 3u);
  EXPECT_EQ(refused.slot, nullptr);
  const CopiesToHost made = copies_to_host(batch, room, *program.gpu(0), *pool, kPatience);
  EXPECT_EQ(made.pieces.size(), 3u);
  EXPECT_EQ(made.copies.size(), 1u);
}

}  // namespace
}  // namespace tendon::test
