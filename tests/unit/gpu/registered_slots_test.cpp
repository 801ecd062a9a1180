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
  /// Expects that a message is sent and received on the GPU.
  [[nodiscard]] testing::AssertionResult passes(PipePair& pair, TensorDict batch,
                                                std::uint64_t seed) {
    if (auto sent = pair.client.send(std::move(batch), kPatience); !sent) return succeeds(sent);
    auto received = pair.server.recv({.device = kGpu0}, kPatience);
    if (!received) {
      EXPECT_TRUE(succeeds(pair.server.recv({.device = cpu()}, kPatience)));  // it is still there
      return succeeds(received);
    }
    const Tensor there = read((*received)["x"]);
    if (has_pattern(there.bytes(), seed)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "another content than that of " << seed;
  }
  [[nodiscard]] testing::AssertionResult from_host(PipePair& pair, std::int64_t size) {
    ++seed_;
    return passes(pair, host_batch(seed_, size), seed_);
  }
  /// The same, where the double refuses host memory that is not registered.
  [[nodiscard]] testing::AssertionResult from_registered(PipePair& pair, std::int64_t size) {
    fake.host_memory(1, 0);
    const auto passed = from_host(pair, size);
    fake.host_memory(0, 0);
    return passed;
  }
  [[nodiscard]] std::uint64_t registered_count() {
    return fake.calls("cuMemHostRegister_v2") - calls_before_;
  }
  [[nodiscard]] bool all_are_released() {
    return eventually([&] {
      return fake.calls("cuMemHostRegister_v2") - refused_count ==
             fake.calls("cuMemHostUnregister");
    });
  }
  /// Sends messages until the slots that they take in turn are registered.
  void register_slots(PipePair& pair, std::int64_t size) {
    int in_a_row = 0;
    ASSERT_TRUE(eventually([&] {
      EXPECT_TRUE(from_host(pair, size));
      in_a_row = from_registered(pair, size) ? in_a_row + 1 : 0;
      return in_a_row == 4;
    }));
  }

  static inline std::uint64_t refused_count = 0;  // by all tests of the process

 private:
  std::uint64_t seed_ = 0;
  const std::uint64_t calls_before_ = fake.calls("cuMemHostRegister_v2");
};
INSTANTIATE_TEST_SUITE_P(Shm, RegisteredSlotsTest, testing::Values(kShm), way_name);

TEST_P(RegisteredSlotsTest, ASlotIsRegisteredAfterItsFirstUseAndUsedFromThenOn) {
  PipePair pair = connect();
  EXPECT_FALSE(from_registered(pair, kMiB));
  register_slots(pair, kMiB);
}

TEST_P(RegisteredSlotsTest, ALargeSlotIsRegisteredAsAWhole) {
  PipePair pair = connect();
  register_slots(pair, 5 * kMiB);
  const std::uint64_t count = registered_count();
  EXPECT_TRUE(from_registered(pair, 7 * kMiB)) << "slots of 8 MiB";
  EXPECT_EQ(registered_count(), count);
}

TEST_P(RegisteredSlotsTest, SmallSlotsNeverAre) {
  PipePair pair = connect();
  register_slots(pair, kSmallest);
  const std::uint64_t count = registered_count();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(from_host(pair, kSmallest / 2));
  EXPECT_FALSE(from_registered(pair, kSmallest / 2));
  EXPECT_EQ(registered_count(), count);
}

TEST_P(RegisteredSlotsTest, TheSendersOwnSlotsAreToo) {
  PipePair pair = connect();
  std::uint64_t seed = 0;
  const auto sends = [&] {
    auto sent = pair.client.send(gpu_batch(++seed, kMiB), kPatience);
    if (!sent) return false;
    const auto received = pair.server.recv({.device = cpu()}, kPatience);
    EXPECT_TRUE(succeeds(received));
    return received && has_pattern((*received)["x"].bytes(), seed);
  };
  ASSERT_TRUE(sends());
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(sends());
    fake.host_memory(1, 0);
    const bool is_registered = sends();
    fake.host_memory(0, 0);
    return is_registered;
  }));
}

// Without a GPU the owner would free pages of free slots for slots of another size.
TEST_P(RegisteredSlotsTest, PagesStayWhileAGpuHasThem) {
  ContextOptions client;
  client.link_cap_bytes = 4 * kMiB;
  fake.host_memory(0, 1);  // a page that was freed still reads as before
  PipePair pair = connect(client);
  ASSERT_TRUE(eventually([&] {
    EXPECT_TRUE(from_host(pair, kMiB));
    return registered_count() >= 2;  // the slots that the messages take in turn
  }));
  fake.host_memory(0, 0);
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(from_host(pair, 4 * kMiB - 4096)) << "which is the whole cap";
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(from_host(pair, kMiB)) << "old data";
  }
}

TEST_P(RegisteredSlotsTest, WhatTheDriverRefusesIsCopiedAsBefore) {
  PipePair pair = connect();
  fake.fail("cuMemHostRegister_v2", static_cast<int>(cuda::Status::out_of_memory), 0);
  std::uint64_t last = 0;
  int in_a_row = 0;
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(from_host(pair, 3 * kMiB));
    wait_for_device_thread();
    in_a_row = registered_count() != 0 && registered_count() == last ? in_a_row + 1 : 0;
    last = registered_count();
    return in_a_row == 6;
  })) << "it is tried again";
  refused_count += registered_count();
}

TEST_P(RegisteredSlotsTest, RegistrationsEndWithTheLinkAndTheLastView) {
  const std::uint64_t before = fake.calls("cuMemHostUnregister");
  TensorDict kept;
  {
    PipePair pair = connect();
    register_slots(pair, kMiB);
    ASSERT_TRUE(succeeds(pair.client.send(host_batch(5, kMiB), kPatience)));
    kept = pair.server.recv(kPatience).value();
  }
  wait_for_device_thread();
  EXPECT_EQ(fake.calls("cuMemHostUnregister"), before) << "a view is left";
  EXPECT_TRUE(has_pattern(kept["x"].bytes(), 5));
  kept = TensorDict();
  EXPECT_TRUE(all_are_released());
}

}  // namespace
}  // namespace tendon::test
