// SPDX-License-Identifier: Apache-2.0
// How a receiver handles tensors that lie on its GPU in memory of their sender: views, copies,
// other places, and messages that cannot be delivered to the wanted place.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "channel/direct_views.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/cuda/pipe_gpus.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class DirectRecv : public GpuPipeTest {
 protected:
  [[nodiscard]] Tensor on_gpu_of(std::uint64_t seed, std::int64_t size, Device device = kGpu0) {
    Tensor x = Tensor::empty(DType::u8, {size}).value();
    fill_pattern(x.mutable_bytes(), seed);
    return on_gpu(x, device);
  }
  [[nodiscard]] TensorDict one(std::uint64_t seed, std::int64_t size = 1000) {
    TensorDict batch;
    batch.set("x", on_gpu_of(seed, size));
    return batch;
  }
  /// A leaf on the GPU, one in host memory, and a value.
  [[nodiscard]] TensorDict mixed(std::uint64_t seed, std::int64_t size = 1000) {
    TensorDict batch = one(seed, size);
    batch.set("n", Tensor::of<std::int64_t>({}, {static_cast<std::int64_t>(seed)}));
    batch.set("name", "batch " + std::to_string(seed));
    return batch;
  }
  void send(PipePair& pair, const TensorDict& batch) {
    ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  }
  testing::AssertionResult has(const TensorDict& batch, std::uint64_t seed, Device device = kGpu0) {
    const Tensor x = batch["x"];
    if (x.device() != device) return testing::AssertionFailure() << "x is on " << x.device();
    const Tensor host = device == cpu() ? x : read(x);
    if (has_pattern(host.bytes(), seed)) return testing::AssertionSuccess();
    return testing::AssertionFailure() << "another content than that of " << seed;
  }
  /// How many slots of the sender are held.
  [[nodiscard]] static std::uint64_t held(PipePair& pair) {
    const auto core = detail::ContextCore::of(pair.client_context);
    (void)core->links().all()->front()->collect_returns();
    const auto stats = core->memory().passed->stats();
    return stats.empty() ? 0 : stats.front().second.holds.holds;
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, DirectRecv, testing::Values(kShm, kShmManual), way_name);

TEST_P(DirectRecv, AViewLiesInTheSlotOfItsSenderUntilItIsDropped) {
  PipePair pair = connect();
  send(pair, one(1));
  auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 1));
  const Storage& memory = (*received)["x"].storage();
  EXPECT_EQ(memory.access(), Access::read_only);
  EXPECT_EQ(memory.origin(), Origin::peer_slot);
  EXPECT_EQ(held(pair), 1u);
  EXPECT_EQ(pair.server.stats().copies_d2d, 0u);
  const TensorDict share = *received;
  *received = TensorDict();
  EXPECT_EQ(held(pair), 1u);
}

TEST_P(DirectRecv, ASlotReturnsWhenTheStreamHasDoneWhatItHad) {
  PipePair pair = connect();
  send(pair, one(1));
  const auto stream = make_stream();
  auto received = pair.server.recv({.stream = stream}, kPatience);
  ASSERT_TRUE(succeeds(received));
  {
    Gate gate(fake, stream);
    gate.wait_until_reached();
    *received = TensorDict();
    EXPECT_EQ(held(pair), 1u) << "kernels may read it";
  }
  EXPECT_TRUE(eventually([&] { return held(pair) == 0; }));
}

TEST_P(DirectRecv, BeyondEightViewsMessagesAreCopied) {
  PipePair pair = connect();
  std::vector<TensorDict> views;
  for (std::uint64_t i = 0; i < detail::DirectViews::kMost + 2; ++i) {
    send(pair, one(i));
    auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(has(*received, i));
    views.push_back(*std::move(received));
  }
  EXPECT_EQ(views.back()["x"].storage().access(), Access::read_write);
  EXPECT_EQ(pair.server.stats().copies_d2d, 2u);
  EXPECT_EQ(pair.server.stats().bytes_d2d, 2000u);
  EXPECT_TRUE(eventually([&] { return held(pair) == detail::DirectViews::kMost; }));

  send(pair, one(50));
  EXPECT_TRUE(fails_with(pair.server.recv({.mode = RecvMode::view_only}, kPatience),
                         ErrorCode::no_credit, "8"));
  views.erase(views.begin());
  EXPECT_TRUE(eventually([&] { return held(pair) == detail::DirectViews::kMost; }))
      << "7 views and the message that waits";
  const auto view = pair.server.recv({.mode = RecvMode::view_only}, kPatience);
  ASSERT_TRUE(succeeds(view));
  EXPECT_TRUE(has(*view, 50)) << "it stayed";
}

TEST_P(DirectRecv, ACopyIsMemoryOfTheReceiver) {
  PipePair pair = connect();
  send(pair, mixed(3));
  const auto received = pair.server.recv({.mode = RecvMode::copy}, kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 3));
  EXPECT_EQ((*received)["x"].storage().access(), Access::read_write);
  EXPECT_EQ((*received)["n"].device(), cpu());
  EXPECT_EQ(received->value("name").as_string(), "batch 3");
  EXPECT_TRUE(eventually([&] { return held(pair) == 0; }));
}

TEST_P(DirectRecv, ItIsDeliveredWhereItIsWanted) {
  PipePair pair = connect();
  for (std::uint64_t i = 0; i < 4; ++i) send(pair, mixed(i));

  const auto here = pair.server.recv({.device = cpu()}, kPatience);
  ASSERT_TRUE(succeeds(here));
  EXPECT_TRUE(has(*here, 0, cpu()));
  EXPECT_EQ(number_of(*here), 0);
  EXPECT_EQ(pair.server.stats().copies_d2h, 1u);

  const auto there = pair.server.recv({.device = kGpu0}, kPatience);
  ASSERT_TRUE(succeeds(there));
  EXPECT_TRUE(has(*there, 1));
  EXPECT_EQ((*there)["n"].device(), kGpu0) << "all leaves";

  const auto other = pair.server.recv({.device = kGpu1}, kPatience);
  ASSERT_TRUE(succeeds(other));
  EXPECT_TRUE(has(*other, 2, kGpu1));
  EXPECT_EQ(pair.server.stats().copies_d2h, 2u) << "by way of the host";

  const auto message = pair.server.recv_message(kPatience);
  ASSERT_TRUE(succeeds(message));
  EXPECT_TRUE(has(*message->tensors, 3));
  EXPECT_EQ(message->tensors->value("name").as_string(), "batch 3");
  EXPECT_TRUE(eventually([&] { return held(pair) == 0; })) << "all are copies";
}

TEST_P(DirectRecv, ItFillsLeavesThatExist) {
  PipePair pair = connect();
  for (std::uint64_t i = 0; i < 4; ++i) send(pair, mixed(i));

  const auto into = [&](Device x, Device n) {
    TensorDict destination;
    destination.set("x", x == cpu() ? Tensor::zeros(DType::u8, {1000}).value()
                                    : on_gpu(Tensor::zeros(DType::u8, {1000}).value(), x));
    destination.set("n", n == cpu() ? Tensor::zeros(DType::i64, {}).value()
                                    : on_gpu(Tensor::zeros(DType::i64, {}).value(), n));
    return destination;
  };
  const auto number = [&](const TensorDict& batch) {
    const Tensor n = batch["n"];
    return (n.device() == cpu() ? n : read(n)).item<std::int64_t>();
  };
  std::uint64_t seed = 0;
  for (const auto& [x, n] :
       {std::pair{cpu(), cpu()}, {kGpu0, cpu()}, {cpu(), kGpu0}, {kGpu1, kGpu1}}) {
    TensorDict destination = into(x, n);
    ASSERT_TRUE(succeeds(pair.server.recv_into(destination, kPatience))) << seed;
    EXPECT_TRUE(has(destination, seed, x)) << seed;
    EXPECT_EQ(number(destination), static_cast<std::int64_t>(seed));
    EXPECT_EQ(destination.value("name").as_string(), "batch " + std::to_string(seed));
    ++seed;
  }
  EXPECT_TRUE(eventually([&] { return held(pair) == 0; }));
}

TEST_P(DirectRecv, AnotherSchemaThanTheDestinationsStays) {
  PipePair pair = connect();
  send(pair, one(1));
  TensorDict other;
  other.set("y", Tensor::zeros(DType::u8, {1000}).value());
  EXPECT_TRUE(fails_with(pair.server.recv_into(other, kPatience), ErrorCode::schema_mismatch));
  EXPECT_TRUE(has(pair.server.recv(kPatience).value(), 1));
}

TEST_P(DirectRecv, WhatCannotBeCopiedStaysInItsTurn) {
  ContextOptions small;
  small.device_cap_bytes = 2 << 20;
  PipePair pair = connect({}, small);
  send(pair, mixed(1, 3 << 20));
  send(pair, one(2));
  EXPECT_TRUE(fails_with(pair.server.recv({.mode = RecvMode::copy}, kPatience),
                         ErrorCode::message_too_large));
  EXPECT_TRUE(
      fails_with(pair.server.recv({.device = kGpu1}, kPatience), ErrorCode::message_too_large));
  const auto first = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(first));
  EXPECT_TRUE(has(*first, 1));
  EXPECT_EQ(number_of(*first), 1);
  EXPECT_TRUE(has(pair.server.recv(kPatience).value(), 2));
}

TEST_P(DirectRecv, AStreamThatIsCapturedLeavesTheMessage) {
  PipePair pair = connect();
  send(pair, one(1));
  const auto stream = make_stream();
  ASSERT_EQ(fake.begin_capture(stream, 2), 0);
  EXPECT_TRUE(fails_with(pair.server.recv({.mode = RecvMode::copy, .stream = stream}, kPatience),
                         ErrorCode::invalid_argument));
  std::size_t captured = 0;
  (void)fake.end_capture(stream, &captured);
  EXPECT_TRUE(has(pair.server.recv({.stream = stream}, kPatience).value(), 1));
}

TEST_P(DirectRecv, AViewOnAStreamOfAnotherGpuIsRefused) {
  PipePair pair = connect();
  send(pair, one(1));
  const auto stream = make_stream(kGpu1);
  EXPECT_TRUE(
      fails_with(pair.server.recv({.stream = stream}, kPatience), ErrorCode::invalid_argument));
  EXPECT_TRUE(has(pair.server.recv(kPatience).value(), 1));
}

TEST_P(DirectRecv, AnAsynchronousReceiveCopies) {
  PipePair pair = connect();
  auto posted = pair.server.recv_async();
  auto wanted_there = pair.server.recv_async({.device = kGpu0});
  auto message = pair.server.recv_message_async();
  for (std::uint64_t i = 0; i < 3; ++i) send(pair, mixed(i));
  const auto first = posted.wait(kPatience);
  ASSERT_TRUE(succeeds(first));
  EXPECT_TRUE(has(*first, 0));
  EXPECT_EQ((*first)["x"].storage().access(), Access::read_write);
  EXPECT_EQ((*first)["n"].device(), cpu());
  const auto second = wanted_there.wait(kPatience);
  ASSERT_TRUE(succeeds(second));
  EXPECT_TRUE(has(*second, 1));
  EXPECT_EQ((*second)["n"].device(), kGpu0);
  const auto third = message.wait(kPatience);
  ASSERT_TRUE(succeeds(third));
  EXPECT_TRUE(has(*third->tensors, 2));
  EXPECT_EQ(third->tensors->value("name").as_string(), "batch 2");
  EXPECT_EQ(pair.server.stats().copies_d2d, 3u);
  EXPECT_TRUE(eventually([&] { return held(pair) == 0; }));
}

TEST_P(DirectRecv, WhatAnAsynchronousReceiveCannotDeliverStays) {
  ContextOptions small;
  small.device_cap_bytes = 2 << 20;
  PipePair pair = connect({}, small);
  send(pair, mixed(1, 3 << 20));
  EXPECT_TRUE(fails_with(pair.server.recv_async().wait(kPatience), ErrorCode::message_too_large));
  EXPECT_TRUE(fails_with(pair.server.recv_async({.device = kGpu1}).wait(kPatience),
                         ErrorCode::unsupported_device));
  const auto there = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(there));
  EXPECT_TRUE(has(*there, 1));
  EXPECT_EQ(number_of(*there), 1);
}

TEST_P(DirectRecv, AnAsynchronousReceiveCopiesToHostMemory) {
  PipePair pair = connect();
  auto here = pair.server.recv_async({.device = cpu()});
  TensorDict destination;
  destination.set("x", Tensor::zeros(DType::u8, {20 << 20}).value());
  destination.set("n", Tensor::zeros(DType::i64, {}).value());
  auto into = pair.server.recv_into_async(destination);
  for (std::uint64_t i = 0; i < 2; ++i) send(pair, mixed(i, 20 << 20));
  const auto first = here.wait(kPatience);
  ASSERT_TRUE(succeeds(first));
  EXPECT_TRUE(has(*first, 0, cpu()));
  EXPECT_EQ(first->value("name").as_string(), "batch 0");
  ASSERT_TRUE(succeeds(into.wait(kPatience)));
  EXPECT_TRUE(has(destination, 1, cpu()));
  EXPECT_EQ(number_of(destination), 1);
  EXPECT_EQ(pair.server.stats().copies_d2h, 2u);
  EXPECT_TRUE(eventually([&] { return held(pair) == 0; }));
}

TEST_P(DirectRecv, AnAsynchronousReceiveLendsNoView) {
  PipePair pair = connect();
  send(pair, one(1));
  EXPECT_TRUE(fails_with(pair.server.recv_async({.mode = RecvMode::view_only}).wait(kPatience),
                         ErrorCode::no_credit));
  EXPECT_TRUE(
      fails_with(pair.server.recv_async({.device_mode = RecvMode::view_only}).wait(kPatience),
                 ErrorCode::no_credit));
  EXPECT_TRUE(has(pair.server.recv(kPatience).value(), 1));
}

TEST_P(DirectRecv, AViewOutlivesItsPipeAndBothContexts) {
  TensorDict kept;
  {
    PipePair pair = connect();
    send(pair, one(4));
    kept = pair.server.recv(kPatience).value();
  }
  EXPECT_TRUE(has(kept, 4));
}

TEST_P(DirectRecv, GivenBackItIsTheNextOneAgain) {
  PipePair pair = connect();
  send(pair, one(1));
  send(pair, one(2));
  auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  pair.server.give_back(
      Message{.tag = 0, .header = {}, .tensors = *std::move(received), .bytes = {}});
  EXPECT_TRUE(has(pair.server.recv(kPatience).value(), 1));
  EXPECT_TRUE(has(pair.server.recv(kPatience).value(), 2));
}

TEST_P(DirectRecv, WhatIsNotTakenReturnsWithThePipe) {
  PipePair pair = connect();
  for (std::uint64_t i = 0; i < 3; ++i) send(pair, mixed(i));
  EXPECT_EQ(held(pair), 3u);
  ASSERT_TRUE(succeeds(pair.server.close(kPatience)));
  EXPECT_TRUE(eventually([&] { return held(pair) == 0; }));
}

}  // namespace
}  // namespace tendon::test
