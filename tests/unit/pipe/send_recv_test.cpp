// SPDX-License-Identifier: Apache-2.0
// A delivered tensor equals the sent one bit for bit, whatever its contents.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <tendon/tensor/packed.hpp>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/storage_on_gpu.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class SendRecv : public PipeTest {
 protected:
  /// Sends on a separate thread, because a large message may wait for its receiver.
  static TensorDict pass(Pipe& from, Pipe& to, const TensorDict& batch) {
    std::thread sender([&] { EXPECT_TRUE(succeeds(from.send(batch, kPatience))); });
    auto received = to.recv(kPatience);
    sender.join();
    return std::move(received).value();
  }
};
TENDON_ON_EVERY_WAY(SendRecv);

TEST_P(SendRecv, NestedDictWithValuesArrivesBitForBit) {
  PipePair pair = connect();
  TensorDict batch(Shape{2});
  batch.set("observation/image", Tensor::of<std::uint8_t>({2, 3}, {1, 2, 3, 4, 5, 6}));
  batch.set("observation/state",
            Tensor::of<double>({2}, {-0.0, std::numeric_limits<double>::quiet_NaN()}));
  batch.set("weights", Tensor::of<float>({3}, {1, 2, 3}), Batching::exempt);
  batch.set("info/step", 7);
  batch.set("info/name", "a/b \xc3\xa9");
  batch.set("info/list", Value::List{1, 2.5, nullptr, true, "x"});
  const TensorDict received = pass(pair.client, pair.server, batch);
  EXPECT_TRUE(bitwise_equal(batch, received)) << received;
  EXPECT_EQ(received.batch_size(), Shape({2}));
  EXPECT_EQ(received.value("info/step").as_i64(), 7);
  EXPECT_EQ(received.value("info/name").as_string(), "a/b \xc3\xa9");
}

TEST_P(SendRecv, WhatIsPackedAsTensordictTravelsAsItLies) {
  PipePair pair = connect();
  for (const std::int64_t size : {3, 3'001, 3'000'001}) {
    TensorDict batch;
    batch.set("b", Tensor::empty(DType::u8, {size}).value());
    batch.set("info/r", Tensor::empty(DType::f64, {size / 8 + 1}).value());
    batch.set("a", Tensor::empty(DType::u8, {size}).value());
    for (std::size_t i = 0; i < batch.leaf_count(); ++i)
      fill_pattern(batch.leaf(i).mutable_bytes(), i);
    const TensorDict packed = packed_copy(batch, Layout::tensordict);
    const TensorDict received = pass(pair.client, pair.server, packed);
    ASSERT_TRUE(bitwise_equal(received, batch)) << size;
    ASSERT_NE(packed_view(received), nullptr);
    EXPECT_EQ(packed_view(received)->layout, Layout::tensordict);
    EXPECT_TRUE(std::ranges::equal(packed_view(received)->storage.bytes(),
                                   packed_view(packed)->storage.bytes()))
        << "with its padding";
    // Forwards it unchanged, and receives it into separate leaves.
    TensorDict into = TensorDict::allocate(batch.schema()).value();
    std::thread sender([&] { EXPECT_TRUE(succeeds(pair.server.send(received, kPatience))); });
    EXPECT_TRUE(succeeds(pair.client.recv_into(into, kPatience)));
    sender.join();
    EXPECT_TRUE(bitwise_equal(into, batch)) << size;
  }
}

TEST_P(SendRecv, DimensionNamesArrive) {
  PipePair pair = connect();
  TensorDict batch(Shape{1, 2}, {"batch", "time"});
  batch.set("x", Tensor::of<float>({1, 2}, {1, 2}));
  const TensorDict received = pass(pair.client, pair.server, batch);
  EXPECT_EQ(received.dimension_names(), (std::vector<std::string>{"batch", "time"}));
}

TEST_P(SendRecv, BothDirections) {
  PipePair pair = connect();
  for (std::int64_t n = 0; n < 100; ++n) {
    ASSERT_EQ(number_of(pass(pair.client, pair.server, numbered(n))), n);
    ASSERT_EQ(number_of(pass(pair.server, pair.client, numbered(-n))), -n);
  }
}

TEST_P(SendRecv, EveryDType) {
  PipePair pair = connect();
  TensorDict all;
  std::uint64_t seed = 0;
  for (const DTypeInfo& type : dtype_table()) {
    Tensor tensor = Tensor::empty(type.dtype, {3, 5}).value();
    fill_pattern(tensor.mutable_bytes(), ++seed);
    TensorDict one;
    one.set("x", tensor);
    EXPECT_TRUE(bitwise_equal(pass(pair.client, pair.server, one), one)) << type.name;
    all.set(std::string(type.name), tensor);
  }
  EXPECT_TRUE(bitwise_equal(pass(pair.client, pair.server, all), all));
}

TEST_P(SendRecv, EverySizeAroundALimit) {
  PipePair pair = connect();
  std::uint64_t seed = 0;
  // Inline messages end at 8 KiB, slots begin at 4 KiB, frames and pieces of a copy are 1 MiB.
  for (const std::uint64_t limit :
       {8ull, 64ull, 4096ull, 8192ull, 65536ull, 1ull << 20, 4ull << 20}) {
    for (const std::uint64_t size : {limit - 1, limit, limit + 1}) {
      ++seed;
      EXPECT_TRUE(is_patterned(pass(pair.client, pair.server, patterned(seed, size)), seed, size))
          << size;
    }
  }
}

TEST_P(SendRecv, SizesOfPayloadAndValuesTogetherAroundTheInlineLimit) {
  PipePair pair = connect();
  for (std::size_t text_bytes = 90; text_bytes < 130; ++text_bytes) {
    TensorDict batch = patterned(text_bytes, 8064);
    batch.set("text", std::string(text_bytes, 't'));
    EXPECT_TRUE(bitwise_equal(pass(pair.client, pair.server, batch), batch)) << text_bytes;
  }
}

TEST_P(SendRecv, NoLeafOneLeafManyLeaves) {
  PipePair pair = connect();
  EXPECT_EQ(pass(pair.client, pair.server, TensorDict()).leaf_count(), 0u);

  TensorDict only_values;
  only_values.set("info", "no tensor at all");
  EXPECT_EQ(pass(pair.client, pair.server, only_values).value("info").as_string(),
            "no tensor at all");

  TensorDict many;
  for (int i = 0; i < 1000; ++i)
    many.set("layer" + std::to_string(i % 30) + "/w" + std::to_string(i),
             Tensor::of<std::int32_t>({2}, {i, -i}));
  const TensorDict received = pass(pair.client, pair.server, many);
  EXPECT_EQ(received.leaf_count(), 1000u);
  EXPECT_TRUE(bitwise_equal(received, many));
}

TEST_P(SendRecv, LeavesWithoutElements) {
  PipePair pair = connect();
  TensorDict batch;
  batch.set("none", Tensor::empty(DType::f32, {0}).value());
  batch.set("between", Tensor::of<std::uint8_t>({3}, {1, 2, 3}));
  batch.set("flat", Tensor::empty(DType::f64, {4, 0, 7}).value());
  const TensorDict received = pass(pair.client, pair.server, batch);
  EXPECT_TRUE(bitwise_equal(received, batch));
  EXPECT_EQ(received["flat"].shape(), Shape({4, 0, 7}));

  TensorDict nothing;
  nothing.set("none", Tensor::empty(DType::f32, {0}).value());
  EXPECT_TRUE(bitwise_equal(pass(pair.client, pair.server, nothing), nothing));
}

TEST_P(SendRecv, AnyStridesAreSentAndArriveContiguous) {
  PipePair pair = connect();
  std::vector<std::int32_t> numbers(60'000);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Tensor base = Tensor::of<std::int32_t>({300, 200}, numbers);
  TensorDict batch;
  batch.set("transposed", base.transpose(0, 1).value());
  batch.set("column", base.select(1, 7).value());
  batch.set("rows", base.slice(0, 10, 20).value());
  batch.set("backwards",
            Tensor::view(base.storage(), 4 * 59'999, DType::i32, {60'000}, {-1}).value());
  batch.set("repeated", Tensor::view(base.storage(), 4 * 5, DType::i32, {1000, 3}, {0, 1}).value());
  const TensorDict received = pass(pair.client, pair.server, batch);
  EXPECT_TRUE(bitwise_equal(received, batch));
  for (const auto& [path, tensor] : received) EXPECT_TRUE(tensor.is_contiguous()) << path;
  EXPECT_EQ(received["transposed"].item<std::int32_t>({3, 2}), 2 * 200 + 3);
  EXPECT_EQ(received["backwards"].item<std::int32_t>({0}), 59'999);
  EXPECT_EQ(received["repeated"].item<std::int32_t>({999, 2}), 7);
}

TEST_P(SendRecv, ArgumentsMayBeReusedAfterSend) {
  PipePair pair = connect();
  for (const std::uint64_t size : {64ull, 100'000ull}) {
    TensorDict batch = patterned(1, size);
    ASSERT_TRUE(succeeds(pair.server.send(batch, kPatience)));
    fill_pattern(batch["x"].mutable_bytes(), 2);
    ASSERT_TRUE(is_patterned(pair.client.recv(kPatience).value(), 1, size));
  }
}

TEST_P(SendRecv, AReceiveBufferIsNeverOverwrittenWhileHeld) {
  PipePair pair = connect();
  std::vector<TensorDict> held;
  for (std::uint64_t n = 0; n < 20; ++n) {
    const std::uint64_t size = n % 2 == 0 ? 100 : 50'000;
    held.push_back(pass(pair.client, pair.server, patterned(n, size)));
  }
  for (std::uint64_t n = 0; n < held.size(); ++n)
    EXPECT_TRUE(is_patterned(held[n], n, n % 2 == 0 ? 100 : 50'000)) << n;
}

TEST_P(SendRecv, TheReceiverMayWriteInPlace) {
  PipePair pair = connect();
  for (const std::uint64_t size : {100ull, 50'000ull}) {
    TensorDict received = pass(pair.client, pair.server, patterned(3, size));
    ASSERT_EQ(received["x"].access(), Access::read_write);
    fill_pattern(received["x"].mutable_bytes(), 4);
    EXPECT_TRUE(is_patterned(received, 4, size));
  }
}

TEST_P(SendRecv, ReceivedTensorsOutliveEverything) {
  std::optional<TensorDict> large;
  std::optional<TensorDict> small;
  {
    PipePair pair = connect();
    large = pass(pair.client, pair.server, patterned(5, 300'000));
    small = pass(pair.client, pair.server, patterned(6, 30));
  }
  EXPECT_TRUE(is_patterned(*large, 5, 300'000));
  EXPECT_TRUE(is_patterned(*small, 6, 30));
  fill_pattern((*large)["x"].mutable_bytes(), 7);
}

TEST_P(SendRecv, PathAndPeerCanBeRead) {
  PipePair pair = connect();
  const PathKind kind = way().is_shm() ? PathKind::shm : PathKind::tcp;
  for (const Pipe* pipe : {&pair.client, &pair.server}) {
    EXPECT_EQ(pipe->path().kind, kind);
    EXPECT_FALSE(pipe->path().reason.empty());
    EXPECT_EQ(pipe->path().to_string().substr(0, 5), way().is_shm() ? "shm: " : "tcp: ");
    EXPECT_EQ(pipe->peer().pid, getpid());
    EXPECT_EQ(pipe->peer().uid, getuid());
  }
  EXPECT_EQ(pair.client.peer().name, "server");
  EXPECT_EQ(pair.server.peer().name, "client");
  EXPECT_EQ(pair.client.peer().context, pair.server_context.id());
  EXPECT_EQ(pair.server.peer().context, pair.client_context.id());
}

TEST_P(SendRecv, AMessageAboveTheCapIsRefusedBeforeAnythingIsSent) {
  PipePair pair =
      connect({.link_cap_bytes = 1 << 20}, {.link_cap_bytes = 1 << 20, .pool_cap_bytes = 1 << 20});
  const std::uint64_t cap = 1 << 20;
  EXPECT_TRUE(fails_with(pair.client.send(patterned(1, cap + 1), kPatience),
                         ErrorCode::message_too_large, "link_cap_bytes"));
  EXPECT_TRUE(fails_with(pair.client.send(patterned(1, cap + 1), kPatience),
                         ErrorCode::message_too_large, std::to_string(cap)));
  EXPECT_TRUE(fails_with(pair.client.loan(bytes_schema(cap + 1), kPatience),
                         ErrorCode::message_too_large, "link_cap_bytes"));
  EXPECT_TRUE(fails_with(pair.server.recv(0s), ErrorCode::timeout));
  EXPECT_TRUE(is_patterned(pass(pair.client, pair.server, patterned(2, cap)), 2, cap));
}

TEST_P(SendRecv, ADeviceThatCannotBeReadIsRefusedNamingTheLeaf) {
  PipePair pair = connect();
  const Storage elsewhere = storage_on_gpu(64, {DeviceKind::rocm, 0});
  TensorDict tree;
  tree.set("on/gpu", Tensor::view(elsewhere, 0, DType::u8, {64}).value());
  const TensorDict packed = make_packed(tree.schema(), Layout::aligned, elsewhere).value();
  const TensorDict in_file = make_packed(tree.schema(), Layout::safetensors, elsewhere).value();
  for (TensorDict batch : {tree, packed, in_file}) {
    EXPECT_TRUE(
        fails_with(pair.client.send(batch, kPatience), ErrorCode::unsupported_device, "on/gpu"));
    EXPECT_TRUE(fails_with(pair.client.send_async(batch).wait(kPatience),
                           ErrorCode::unsupported_device, "on/gpu"));
    EXPECT_TRUE(fails_with(pair.client.recv_into(batch, kPatience), ErrorCode::unsupported_device,
                           "on/gpu"));
  }
  EXPECT_TRUE(fails_with(pair.client.send_async(storage_on_gpu(64)).wait(kPatience),
                         ErrorCode::unsupported_device, "cuda:0"));
  EXPECT_EQ(number_of(pass(pair.client, pair.server, numbered(1))), 1);
}

}  // namespace
}  // namespace tendon::test
