// SPDX-License-Identifier: Apache-2.0
// Slots of shared memory that GPUs copy from and to, registered with the double of the driver.
#include "cuda/registered_slots.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>

#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"

namespace tendon::test {
namespace {

constexpr std::int64_t kSmallest = 256 << 10;
constexpr std::int64_t kMiB = 1 << 20;

class RegisteredSlotsTest : public StagedGpuPipeTest {
 protected:
  ~RegisteredSlotsTest() override {
    fake.host_memory(0, 0);
    fake.fail("cuMemHostRegister_v2", 0, 0);
  }

  [[nodiscard]] static TensorDict host_batch(std::uint64_t seed, std::int64_t size) {
    TensorDict batch;
    batch.set("x", Tensor::empty(DType::u8, {size}).value());
    fill_pattern(batch["x"].mutable_bytes(), seed);
    return batch;
  }
  [[nodiscard]] TensorDict gpu_batch(std::uint64_t seed, std::int64_t size) {
    TensorDict batch;
    batch.set("x", on_gpu(host_batch(seed, size)["x"]));
    return batch;
  }
  /// One message, received on the GPU.
  [[nodiscard]] testing::AssertionResult passes(PipePair& pair, TensorDict batch,
                                                std::uint64_t seed) {
    if (auto sent = pair.client.send(std::move(batch), kPatience); !sent) return succeeds(sent);
    auto received = pair.server.recv({.device = kGpu0}, kPatience);
    if (!received) return succeeds(received);
    const Tensor there = read((*received)["x"]);
    if (has_pattern(there.bytes(), seed)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "another content than that of " << seed;
  }
  [[nodiscard]] testing::AssertionResult from_host(PipePair& pair, std::int64_t size) {
    ++seed_;
    return passes(pair, host_batch(seed_, size), seed_);
  }
  /// The device thread has made the jobs that it has, and those which these post.
  void settle() {
    for (int i = 0; i < 8; ++i) wait_for_device_thread();
  }
  [[nodiscard]] std::uint64_t registered_count() {
    return fake.calls("cuMemHostRegister_v2") - calls_before_;
  }
  [[nodiscard]] bool all_are_released() {
    return eventually(
        [&] { return fake.calls("cuMemHostRegister_v2") == fake.calls("cuMemHostUnregister"); });
  }
  /// Messages, until one has left a slot that is registered.
  void register_one(PipePair& pair, std::int64_t size) {
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(from_host(pair, size));
      settle();
      return registered_count() != 0;
    }));
  }

 private:
  std::uint64_t seed_ = 0;
  const std::uint64_t calls_before_ = fake.calls("cuMemHostRegister_v2");
};
INSTANTIATE_TEST_SUITE_P(Shm, RegisteredSlotsTest, testing::Values(kShm), way_name);

TEST_P(RegisteredSlotsTest, ASlotIsRegisteredAfterItsFirstUseAndUsedFromThenOn) {
  PipePair pair = connect();
  register_one(pair, kMiB);
  const std::uint64_t count = registered_count();
  fake.host_memory(1, 0);  // other memory of the host is refused
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(from_host(pair, kMiB));
  fake.host_memory(0, 0);
  EXPECT_EQ(registered_count(), count) << "once";
}

TEST_P(RegisteredSlotsTest, ALargeSlotIsRegisteredInPiecesAsFarAsItIsUsed) {
  PipePair pair = connect();
  register_one(pair, 5 * kMiB);
  EXPECT_EQ(registered_count(), 3u) << "of a slot of 8 MiB";
  fake.host_memory(1, 0);
  EXPECT_TRUE(from_host(pair, 5 * kMiB));
  fake.host_memory(0, 0);
  EXPECT_TRUE(from_host(pair, 7 * kMiB)) << "the rest is copied as before";
  settle();
  EXPECT_EQ(registered_count(), 4u);
  fake.host_memory(1, 0);
  EXPECT_TRUE(from_host(pair, 7 * kMiB));
}

TEST_P(RegisteredSlotsTest, SmallSlotsNeverAre) {
  PipePair pair = connect();
  register_one(pair, kSmallest);
  const std::uint64_t count = registered_count();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(from_host(pair, kSmallest / 2));
  settle();
  EXPECT_EQ(registered_count(), count);
}

TEST_P(RegisteredSlotsTest, TheSendersOwnSlotsAreToo) {
  PipePair pair = connect();
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    ASSERT_TRUE(succeeds(pair.client.send(gpu_batch(seed, kMiB), kPatience)));
    const auto received = pair.server.recv({.device = cpu()}, kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(has_pattern((*received)["x"].bytes(), seed));
    settle();
    EXPECT_EQ(registered_count(), 1u);
    fake.host_memory(1, 0);
  }
}

// The owner would give pages of free slots back for slots of another size.
TEST_P(RegisteredSlotsTest, PagesStayWhileAGpuHasThem) {
  ContextOptions client;
  client.link_cap_bytes = 4 * kMiB;
  fake.host_memory(0, 1);  // a page that was taken away is read as it was
  PipePair pair = connect(client);
  register_one(pair, kMiB);
  fake.host_memory(0, 0);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(from_host(pair, 4 * kMiB - 4096)) << "which is the whole cap";
    ASSERT_TRUE(from_host(pair, kMiB)) << "old data";
  }
}

TEST_P(RegisteredSlotsTest, WhatTheDriverRefusesIsCopiedAsBefore) {
  PipePair pair = connect();
  fake.fail("cuMemHostRegister_v2", static_cast<int>(cuda::Status::out_of_memory), 0);
  register_one(pair, 3 * kMiB);
  const std::uint64_t count = registered_count();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(from_host(pair, 3 * kMiB));
  settle();
  EXPECT_EQ(registered_count(), count) << "it is not tried again";
}

TEST_P(RegisteredSlotsTest, RegistrationsEndWithTheLinkAndTheLastView) {
  const std::uint64_t before = fake.calls("cuMemHostUnregister");
  TensorDict kept;
  {
    PipePair pair = connect();
    register_one(pair, kMiB);
    ASSERT_TRUE(succeeds(pair.client.send(host_batch(5, kMiB), kPatience)));
    kept = pair.server.recv(kPatience).value();
  }
  settle();
  EXPECT_EQ(fake.calls("cuMemHostUnregister"), before) << "a view is left";
  EXPECT_TRUE(has_pattern(kept["x"].bytes(), 5));
  kept = TensorDict();
  EXPECT_TRUE(all_are_released());
}

}  // namespace
}  // namespace tendon::test
