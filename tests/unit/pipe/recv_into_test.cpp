// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <numeric>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class RecvInto : public PipeTest {};
TENDON_ON_EVERY_WAY(RecvInto);

TEST_P(RecvInto, FillsTheLeavesThatExist) {
  PipePair pair = connect();
  for (const std::uint64_t size : {0ull, 1ull, 100ull, 9000ull, 200'000ull, 3ull << 20}) {
    TensorDict into = patterned(0, size);
    const std::byte* const memory = into["x"].data();
    std::thread sender(
        [&] { EXPECT_TRUE(succeeds(pair.server.send(patterned(size, size), kPatience))); });
    const auto received = pair.client.recv_into(into, kPatience);
    sender.join();
    ASSERT_TRUE(succeeds(received)) << size;
    EXPECT_EQ(into["x"].data(), memory);
    EXPECT_TRUE(is_patterned(into, size, size));
  }
}

TEST_P(RecvInto, AMismatchSaysWhatAndLeavesTheMessage) {
  PipePair pair = connect();
  for (const std::uint64_t size : {100ull, 100'000ull}) {
    ASSERT_TRUE(succeeds(pair.server.send(patterned(1, size), kPatience)));
    TensorDict shorter = patterned(2, size - 1);
    EXPECT_TRUE(
        fails_with(pair.client.recv_into(shorter, kPatience), ErrorCode::schema_mismatch, "x"));
    EXPECT_TRUE(is_patterned(shorter, 2, size - 1)) << "untouched";
    TensorDict other_name = numbered(3);
    EXPECT_TRUE(
        fails_with(pair.client.recv_into(other_name, kPatience), ErrorCode::schema_mismatch));
    EXPECT_EQ(number_of(other_name), 3);
    TensorDict other_type;
    other_type.set("x", Tensor::empty(DType::i8, {static_cast<std::int64_t>(size)}).value());
    EXPECT_TRUE(
        fails_with(pair.client.recv_into(other_type, kPatience), ErrorCode::schema_mismatch));
    EXPECT_TRUE(is_patterned(pair.client.recv(kPatience).value(), 1, size));
  }
  EXPECT_TRUE(fails_with(pair.client.recv(0s), ErrorCode::timeout));
}

TEST_P(RecvInto, ScattersIntoStrides) {
  PipePair pair = connect();
  std::vector<std::int32_t> numbers(30'000);
  std::iota(numbers.begin(), numbers.end(), 0);
  TensorDict batch;
  batch.set("x", Tensor::of<std::int32_t>({100, 300}, numbers));
  ASSERT_TRUE(succeeds(pair.server.send(batch, kPatience)));
  const Tensor transposed = Tensor::zeros(DType::i32, {300, 100}).value();
  TensorDict into;
  into.set("x", transposed.transpose(0, 1).value());
  ASSERT_TRUE(succeeds(pair.client.recv_into(into, kPatience)));
  EXPECT_TRUE(bitwise_equal(into, batch));
  EXPECT_EQ(transposed.item<std::int32_t>({299, 98}), 98 * 300 + 299);
}

TEST_P(RecvInto, RefusesWhatOverlapsItselfAndWhatIsReadOnly) {
  PipePair pair = connect();
  TensorDict batch;
  batch.set("x", Tensor::of<std::int32_t>({4}, {1, 2, 3, 4}));
  ASSERT_TRUE(succeeds(pair.server.send(batch, kPatience)));
  const Storage storage = Storage::allocate(64).value();
  TensorDict overlapping;
  overlapping.set("x", Tensor::view(storage, 0, DType::i32, {4}, {0}).value());
  EXPECT_TRUE(
      fails_with(pair.client.recv_into(overlapping, kPatience), ErrorCode::overlapping, "x"));
  TensorDict read_only;
  read_only.set("x", Tensor::view(Storage(storage.owner(), storage.data(), 64, Access::read_only),
                                  0, DType::i32, {4})
                         .value());
  EXPECT_TRUE(fails_with(pair.client.recv_into(read_only, kPatience), ErrorCode::read_only, "x"));
  EXPECT_TRUE(bitwise_equal(pair.client.recv(kPatience).value(), batch)) << "it stayed";
}

TEST_P(RecvInto, BringsTheValuesToo) {
  PipePair pair = connect();
  TensorDict batch = numbered(3);
  batch.set("info/step", 11);
  ASSERT_TRUE(succeeds(pair.server.send(batch, kPatience)));
  TensorDict into = TensorDict::allocate(batch.schema()).value();
  ASSERT_TRUE(succeeds(pair.client.recv_into(into, kPatience)));
  EXPECT_EQ(number_of(into), 3);
  EXPECT_EQ(into.value("info/step").as_i64(), 11);
}

TEST_P(RecvInto, GivesTheSlotBackAtOnce) {
  PipePair pair = connect({}, {.link_cap_bytes = 1 << 20});
  TensorDict into = patterned(0, 200'000);
  for (std::uint64_t n = 0; n < 50; ++n) {
    ASSERT_TRUE(succeeds(pair.server.send(patterned(n, 200'000), kPatience)));
    ASSERT_TRUE(succeeds(pair.client.recv_into(into, kPatience)));
    ASSERT_TRUE(is_patterned(into, n, 200'000));
  }
}

TEST_P(RecvInto, PostedBeforeTheMessageComes) {
  PipePair pair = connect();
  TensorDict into = patterned(0, 3 << 20);
  auto received = pair.client.recv_into_async(into);
  Completion<void> sent = pair.server.send_async(patterned(5, 3 << 20));
  EXPECT_TRUE(succeeds(received.wait(kPatience)));
  EXPECT_TRUE(is_patterned(into, 5, 3 << 20));
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
}

TEST_P(RecvInto, OverSocketsAWaitingCallIsWrittenToWithoutACopy) {
  if (way().is_shm()) GTEST_SKIP() << "in shared memory recv_into is the one copy";
  PipePair pair = connect();
  const auto filled = [](std::uint64_t seed) {
    TensorDict batch;
    for (const char* name : {"a", "b"}) {
      Tensor tensor = Tensor::empty(DType::u8, {(2 << 20) + 3}).value();
      fill_pattern(tensor.mutable_bytes(), seed++);
      batch.set(name, std::move(tensor));
    }
    return batch;
  };
  TensorDict into = filled(0);
  const auto pass = [&](std::uint64_t seed, Layout layout) {
    std::thread receiver([&] {
      auto received = pair.client.recv_into(into, kPatience);
      while (!received && received.error().code == ErrorCode::busy)
        received = pair.client.recv_into(into, kPatience);
      EXPECT_TRUE(succeeds(received));
    });
    EXPECT_TRUE(eventually([&] {
      auto polled = pair.client.recv(0s);
      return !polled && polled.error().code == ErrorCode::busy;
    }));
    EXPECT_TRUE(succeeds(pair.server.send(packed_copy(filled(seed), layout), kPatience)));
    receiver.join();
    EXPECT_TRUE(bitwise_equal(into, filled(seed)));
  };
  pass(1, Layout::aligned);  // announces the schema
  const std::uint64_t copies = pair.client.stats().copies;
  for (std::uint64_t seed = 2; seed < 6; ++seed)
    pass(seed, seed % 2 == 0 ? Layout::tensordict : Layout::aligned);
  EXPECT_EQ(pair.client.stats().copies, copies);
}

TEST_P(RecvInto, AWaitThatEndsWithoutItsMessageLeavesTheDestinationToNobody) {
  // The next receive returns the whole message, wherever its bytes were written meanwhile.
  PipePair pair = connect();
  TensorDict first = patterned(0, 3 << 20);
  TensorDict second = patterned(0, 3 << 20);
  for (std::uint64_t seed = 1; seed < 30; ++seed) {
    std::thread sender(
        [&] { EXPECT_TRUE(succeeds(pair.server.send(patterned(seed, 3 << 20), kPatience))); });
    const auto started = pair.client.recv_into(first, std::chrono::microseconds(seed * 97));
    if (started) {
      EXPECT_TRUE(is_patterned(first, seed, 3 << 20));
    } else if (seed % 3 == 0) {
      EXPECT_TRUE(is_patterned(pair.client.recv(kPatience).value(), seed, 3 << 20));
    } else {
      TensorDict& into = seed % 3 == 1 ? first : second;
      ASSERT_TRUE(succeeds(pair.client.recv_into(into, kPatience)));
      EXPECT_TRUE(is_patterned(into, seed, 3 << 20));
    }
    sender.join();
  }
}

}  // namespace
}  // namespace tendon::test
