// SPDX-License-Identifier: Apache-2.0
// Memory on a GPU that is sent to several peers without a copy, on the double of the driver: loans
// that are frozen, and memory of the Context's pool.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <tendon/runtime/gpu_pool.hpp>
#include <tendon/tensor/packed.hpp>
#include <utility>
#include <vector>

#include "unit/gpu/loans.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class GpuMemoryForMany : public GpuLoanTest {
 protected:
  [[nodiscard]] TensorDict frozen(Pipe& pipe, std::uint64_t seed, std::int64_t size,
                                  void* stream = kStreamPerThread) {
    return filled(pipe, seed, size, stream).freeze().value();
  }
  /// Memory of the pool as a batch of loan_schema(size); the program may write it.
  [[nodiscard]] TensorDict allocated(GpuPool& pool, std::uint64_t seed, std::int64_t size) {
    const auto schema = loan_schema(size);
    const std::uint64_t size_bytes = schema->layout(Layout::aligned).total_bytes;
    const Storage memory = pool.allocate(size_bytes, kPatience).value();
    TensorDict batch = make_packed(schema, Layout::aligned, memory).value();
    fill(batch["x"], seed);
    fill(batch["y"], seed + 1);
    return batch;
  }
  static TensorDict read_only(const TensorDict& batch) {
    const PackedView& packed = *packed_view(batch);
    return make_packed(packed.schema, packed.layout, packed.storage.read_only()).value();
  }
  [[nodiscard]] bool is_direct() const { return way().is_shm(); }
};
INSTANTIATE_TEST_SUITE_P(Ways, GpuMemoryForMany, testing::Values(kShm, kTcp, kShmManual), way_name);

// Loans that are frozen

TEST_P(GpuMemoryForMany, AFrozenLoanIsSentToSeveralLinksWithoutACopy) {
  PipePair pair = connect();
  Third other = third(pair.client_context);
  Loan loan = filled(pair.client, 1, 100'000);
  loan.set("label", "a cup");
  {
    const auto batch = std::move(loan).freeze();
    ASSERT_TRUE(succeeds(batch));
    EXPECT_TRUE(loan.empty());
    EXPECT_EQ((*batch)["x"].storage().access(), Access::read_only);
    const std::uint64_t copies = fake.calls("cuMemcpyAsync");
    std::vector<TensorDict> received;
    for (const auto& [from, to] :
         {std::pair(&pair.client, &pair.server), std::pair(&other.from, &other.to),
          std::pair(&pair.client, &pair.server)}) {
      ASSERT_TRUE(succeeds(from->send(*batch, kPatience)));
      received.push_back(to->recv(kPatience).value());
    }
    if (is_direct()) {
      EXPECT_EQ(fake.calls("cuMemcpyAsync"), copies);
    }
    for (const TensorDict& each : received) {
      EXPECT_TRUE(has(each, 1));
      EXPECT_EQ(each.value("label").as_string(), "a cup");
    }
  }
  EXPECT_EQ(pair.client.stats().loans_sent, is_direct() ? 2u : 0u);
  EXPECT_EQ(other.from.stats().loans_sent, is_direct() ? 1u : 0u);
  EXPECT_EQ(pair.client.stats().copies_d2d + other.from.stats().copies_d2d, 0u);
  EXPECT_TRUE(returns(pair.client_context));
}

TEST_P(GpuMemoryForMany, EachPeerHasItBehindTheWorkOfTheStream) {
  if (!is_direct()) GTEST_SKIP() << "send waits for the stream";
  PipePair pair = connect();
  Third other = third(pair.client_context);
  warm_up(pair);
  warm_up(other.from, other.to);
  const auto stream = make_stream();
  const TensorDict batch = frozen(pair.client, 2, 5000, stream);
  Gate gate(fake, stream);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience, {.stream = stream})));
  auto sent = other.from.send_async(batch, {.stream = stream});
  EXPECT_TRUE(fails_with(pair.server.recv(10ms), ErrorCode::timeout));
  EXPECT_TRUE(fails_with(other.to.recv(10ms), ErrorCode::timeout));
  gate.open();
  for (Pipe* const to : {&pair.server, &other.to}) {
    const auto received = to->recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(has(*received, 2));
  }
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
}

TEST_P(GpuMemoryForMany, LeavesOfHostMemoryMayBeBesideIt) {
  PipePair pair = connect();
  TensorDict batch = frozen(pair.client, 3, 5000);
  batch.set("n", Tensor::of<double>({1}, {2.5}));
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 3));
  EXPECT_TRUE(bitwise_equal((*received)["n"], batch["n"]));
  EXPECT_EQ(pair.client.stats().copies_d2d, 0u);
}

// The second leaf has the address that it would have in a message in the first slot.
TEST_P(GpuMemoryForMany, TwoLoansSideBySideAreNotOneMessage) {
  PipePair pair = connect();
  const auto schema = Schema::make({{"x", DType::u8, {4096}}}).value();
  std::vector<Tensor> slots;
  for (int i = 0; i < 4; ++i) {
    Loan loan = pair.client.loan(schema, {.device = kGpu0}, kPatience).value();
    slots.push_back(std::move(loan).freeze().value()["x"]);
  }
  std::ranges::sort(slots, {}, [](const Tensor& slot) { return address(slot); });
  ASSERT_EQ(address(slots[1]), address(slots[0]) + 4096);
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) fill(slots[i], i);
  TensorDict batch;
  batch.set("a", slots[0]);
  batch.set("b", slots[1]);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has_pattern(read((*received)["a"]).bytes(), 0));
  EXPECT_TRUE(has_pattern(read((*received)["b"]).bytes(), 1));
  EXPECT_EQ(pair.client.stats().copies_d2d, is_direct() ? 1u : 0u);
}

TEST_P(GpuMemoryForMany, OneThatIsDroppedReturnsBehindItsStream) {
  PipePair pair = connect();
  const auto stream = make_stream();
  {
    Gate gate(fake, stream);
    { const TensorDict batch = frozen(pair.client, 1, 100'000, stream); }
    wait_for_device_thread();
    EXPECT_NE(used_bytes(pair.client_context), 0u);
  }
  EXPECT_TRUE(returns(pair.client_context));
}

TEST_P(GpuMemoryForMany, AnotherContextCopiesIt) {
  PipePair pair = connect();
  const TensorDict batch = frozen(pair.client, 4, 5000);
  ASSERT_TRUE(succeeds(pair.server.send(batch, kPatience)));
  const auto received = pair.client.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 4));
  EXPECT_EQ(pair.server.stats().loans_sent, 0u);
  EXPECT_EQ(pair.server.stats().copies_d2d + pair.server.stats().copies_d2h, 1u);
}

TEST_P(GpuMemoryForMany, LoansOfHostMemoryAndEmptyOnesAreNotFrozen) {
  PipePair pair = connect();
  Loan host = pair.client.loan(loan_schema(10), kPatience).value();
  EXPECT_TRUE(fails_with(std::move(host).freeze(), ErrorCode::not_supported, "host memory"));
  EXPECT_FALSE(host.empty());
  Loan loan = filled(pair.client, 1, 10);
  ASSERT_TRUE(succeeds(pair.client.send(std::move(loan), kPatience)));
  EXPECT_TRUE(fails_with(std::move(loan).freeze(), ErrorCode::invalid_argument, "empty"));
}

// Memory of the pool

TEST_P(GpuMemoryForMany, MemoryOfThePoolIsCopiedWhileTheProgramMayWriteIt) {
  PipePair pair = connect();
  Third other = third(pair.client_context);
  GpuPool pool = pair.client_context.pool(kGpu0, kPatience).value();
  {
    const TensorDict batch = allocated(pool, 5, 5000);
    EXPECT_EQ(batch["x"].device(), kGpu0);
    EXPECT_EQ(address(batch["x"]) % 256, 0u);
    ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
    EXPECT_TRUE(has(pair.server.recv(kPatience).value(), 5));
    EXPECT_EQ(pair.client.stats().copies_d2d, is_direct() ? 1u : 0u);
    const TensorDict sealed = read_only(batch);
    ASSERT_TRUE(succeeds(pair.client.send(sealed, kPatience)));
    ASSERT_TRUE(succeeds(other.from.send(sealed, kPatience)));
    EXPECT_TRUE(has(pair.server.recv(kPatience).value(), 5));
    EXPECT_TRUE(has(other.to.recv(kPatience).value(), 5));
  }
  EXPECT_EQ(pair.client.stats().copies_d2d, is_direct() ? 1u : 0u);
  EXPECT_EQ(pair.client.stats().loans_sent, is_direct() ? 1u : 0u);
  EXPECT_EQ(other.from.stats().loans_sent, is_direct() ? 1u : 0u);
  EXPECT_TRUE(returns(pair.client_context));
}

TEST_P(GpuMemoryForMany, OneLeafThatMayBeWrittenHasAllCopied) {
  PipePair pair = connect();
  GpuPool pool = pair.client_context.pool(kGpu0, kPatience).value();
  const TensorDict writable = allocated(pool, 6, 5000);
  TensorDict batch = read_only(writable);
  batch.set("y", writable["y"]);
  ASSERT_TRUE(succeeds(pair.client.send(batch, kPatience)));
  EXPECT_TRUE(has(pair.server.recv(kPatience).value(), 6));
  EXPECT_EQ(pair.client.stats().loans_sent, 0u);
}

TEST_P(GpuMemoryForMany, ASummarySaysWhatThePoolHasAndWhoHoldsIt) {
  PipePair pair = connect();
  Third other = third(pair.client_context);
  GpuPool pool = pair.client_context.pool(kGpu0, kPatience).value();
  EXPECT_EQ(pool.summary().device, kGpu0);
  EXPECT_EQ(pool.summary().segment_count, 0u);
  EXPECT_TRUE(pool.summary().holders.empty());
  std::optional<TensorDict> batch = allocated(pool, 7, 5000);
  for (Pipe* const from : {&pair.client, &pair.client, &other.from})
    ASSERT_TRUE(succeeds(from->send(read_only(*batch), kPatience)));
  std::vector<TensorDict> received;
  for (Pipe* const to : {&pair.server, &pair.server, &other.to})
    received.push_back(to->recv(kPatience).value());
  const GpuPoolSummary summary = pool.summary();
  EXPECT_EQ(summary.segment_count, 1u);
  EXPECT_EQ(summary.used_bytes, 8192u);
  EXPECT_GE(summary.resident_bytes, summary.used_bytes);
  EXPECT_GE(summary.cap_bytes, summary.resident_bytes);
  EXPECT_NE(summary.to_string().find("cuda:0: 8192 bytes in use"), std::string::npos)
      << summary.to_string();
  ASSERT_EQ(summary.holders.size(), is_direct() ? 2u : 0u);
  for (const PoolHolder& holder : summary.holders) {
    const bool is_third = holder.name.find("third") != std::string::npos;
    EXPECT_TRUE(is_third || holder.name.find("server") != std::string::npos) << holder.name;
    EXPECT_EQ(holder.count, is_third ? 1u : 2u);
    EXPECT_EQ(holder.bytes, 8192u);
    EXPECT_NE(summary.to_string().find(holder.name + " holds "), std::string::npos);
  }
  batch.reset();
  received.clear();
  EXPECT_TRUE(eventually([&] {
    const GpuPoolSummary now = pool.summary();
    return now.used_bytes == 0 && now.holders.empty();
  }));
}

TEST_P(GpuMemoryForMany, AllocateWaitsForRoom) {
  PipePair pair = connect({.device_cap_bytes = 32u << 20});
  GpuPool pool = pair.client_context.pool(kGpu0, kPatience).value();
  const std::uint64_t large = 20u << 20;
  std::optional<Storage> first = pool.allocate(large, kPatience).value();
  EXPECT_TRUE(fails_with(pool.allocate(large, 10ms), ErrorCode::resource_exhausted, "loans"));
  EXPECT_TRUE(fails_with(pool.allocate(40u << 20, kPatience), ErrorCode::message_too_large));
  auto second = std::async(std::launch::async, [&] { return pool.allocate(large, kPatience); });
  EXPECT_EQ(second.wait_for(0ms), std::future_status::timeout);
  first.reset();
  EXPECT_TRUE(succeeds(second.get()));
  EXPECT_EQ(pool.allocate(0, kPatience).value().size_bytes(), 0u);
}

TEST_P(GpuMemoryForMany, APoolThatCannotBeHadIsRefused) {
  PipePair pair = connect();
  const Context& context = pair.client_context;
  EXPECT_TRUE(fails_with(context.pool(cpu(), kPatience), ErrorCode::unsupported_device, "host"));
  EXPECT_TRUE(fails_with(context.pool({DeviceKind::cuda, 7}, kPatience),
                         ErrorCode::unsupported_device, "cuda:7"));
  GpuPool pool = context.pool(kGpu0, kPatience).value();
  EXPECT_TRUE(fails_with(pool.allocate(10, kPatience, {.stream = make_stream(kGpu1)}),
                         ErrorCode::invalid_argument, "another context"));
  const Storage memory = pool.allocate(10, kPatience).value();
  ASSERT_TRUE(succeeds(pair.client_context.close(kPatience)));
  EXPECT_TRUE(fails_with(pool.allocate(10, kPatience), ErrorCode::context_closed));
  EXPECT_TRUE(fails_with(context.pool(kGpu0, kPatience), ErrorCode::context_closed));
  { const PipePair gone = std::move(pair); }
  EXPECT_TRUE(fails_with(pool.allocate(10, kPatience), ErrorCode::context_closed));
  EXPECT_NE(fake.writes(address(Tensor::view(memory, 0, DType::u8, {10}).value()), 10), nullptr);
  EXPECT_EQ(pool.summary().used_bytes, 4096u);
}

}  // namespace
}  // namespace tendon::test
