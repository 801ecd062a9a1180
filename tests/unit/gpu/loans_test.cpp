// SPDX-License-Identifier: Apache-2.0
// Loans whose memory lies on a GPU, on the double of the driver.
#include "unit/gpu/loans.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <tendon/runtime/gpu_pool.hpp>
#include <utility>

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

INSTANTIATE_TEST_SUITE_P(Ways, GpuLoanTest, testing::Values(kShm, kTcp, kShmManual), way_name);

TEST_P(GpuLoanTest, ALoanIsSentWithoutACopyWhereThePeerReadsIt) {
  PipePair pair = connect();
  const bool is_direct = way().transport == Transport::shm;
  for (const std::int64_t size : {1, 4096, 3'000'000}) {
    const auto seed = static_cast<std::uint64_t>(size);
    Loan loan = filled(pair.client, seed, size);
    EXPECT_EQ(loan["x"].device(), kGpu0);
    EXPECT_EQ(loan["x"].storage().access(), Access::read_write);
    loan.set("label", "a cup");
    const std::uint64_t copies = fake.calls("cuMemcpyAsync");
    ASSERT_TRUE(succeeds(pair.client.send(std::move(loan), kPatience)));
    EXPECT_EQ(fake.calls("cuMemcpyAsync") == copies, is_direct);
    EXPECT_TRUE(loan.empty());
    const auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(has(*received, seed));
    EXPECT_EQ(received->value("label").as_string(), "a cup");
  }
  const PipeStats stats = pair.client.stats();
  EXPECT_EQ(stats.loans_sent, is_direct ? 3u : 0u);
  EXPECT_EQ(stats.copies_d2h, is_direct ? 0u : 3u);
  EXPECT_EQ(stats.copies_d2d, 0u);
  EXPECT_EQ(stats.copies, 0u);
  EXPECT_GT(stats.bytes_sent, 3'000'000u);
  ASSERT_EQ(pair.client.device_paths().size(), 1u);
  EXPECT_EQ(pair.client.device_paths()[0].is_direct, is_direct);
  EXPECT_TRUE(returns(pair.client_context));
}

TEST_P(GpuLoanTest, ItArrivesBehindTheWorkThatFillsIt) {
  PipePair pair = connect();
  warm_up(pair);
  const auto stream = make_stream();
  Loan loan = filled(pair.client, 1, 100'000, stream);
  Gate gate(fake, stream);
  auto sent = std::async(std::launch::async, [&] {
    return pair.client.send(std::move(loan), kPatience, {.stream = stream});
  });
  if (way().transport == Transport::shm) {
    EXPECT_TRUE(succeeds(sent.get()));
  }
  EXPECT_TRUE(fails_with(pair.server.recv(10ms), ErrorCode::timeout));
  gate.open();
  if (sent.valid()) {
    EXPECT_TRUE(succeeds(sent.get()));
  }
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 1));
}

TEST_P(GpuLoanTest, ALoanThatIsDroppedReturnsBehindItsStream) {
  PipePair pair = connect();
  const auto stream = make_stream();
  {
    Gate gate(fake, stream);
    { const Loan loan = filled(pair.client, 1, 100'000, stream); }
    wait_for_device_thread();
    EXPECT_NE(used_bytes(pair.client_context), 0u);
  }
  EXPECT_TRUE(returns(pair.client_context));
}

TEST_P(GpuLoanTest, ATensorThatIsKeptOverTheSendMayBeReadThere) {
  PipePair pair = connect();
  warm_up(pair);
  const auto stream = make_stream();
  const GpuPool pool = pair.client_context.pool(kGpu0, kPatience).value();
  for (const bool is_asynchronous : {false, true}) {
    Loan loan = filled(pair.client, 1, 100'000, stream);
    std::optional<Tensor> kept = loan["x"];
    const auto sent =
        is_asynchronous
            ? pair.client.send_async(std::move(loan), {.stream = stream}).wait(kPatience)
            : pair.client.send(std::move(loan), kPatience, {.stream = stream});
    ASSERT_TRUE(succeeds(sent));
    ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
    ASSERT_TRUE(eventually([&] { return pool.summary().holders.empty(); }));
    Gate gate(fake, stream);  // a reader of the loan
    kept.reset();
    wait_for_device_thread();
    EXPECT_NE(used_bytes(pair.client_context), 0u);
    gate.open();
    EXPECT_TRUE(returns(pair.client_context));
  }
}

TEST_P(GpuLoanTest, OneThatNobodyElseHasReturnsWithItsReaders) {
  PipePair pair = connect();
  warm_up(pair);
  const auto stream = make_stream();
  Loan loan = filled(pair.client, 1, 100'000, stream);
  const Gate gate(fake, stream);
  ASSERT_TRUE(succeeds(pair.client.send(std::move(loan), kPatience)));
  ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  EXPECT_TRUE(returns(pair.client_context));
}

TEST_P(GpuLoanTest, ItGoesOnAnyPipeOfItsContextAndOnNoOther) {
  PipePair pair = connect();
  auto [second_client, second_server] = another_pipe(pair);
  ASSERT_TRUE(succeeds(second_client.send(filled(pair.client, 1, 5000), kPatience)));
  const auto received = second_server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 1));
  Loan loan = filled(pair.client, 2, 5000);
  EXPECT_TRUE(fails_with(pair.server.send(std::move(loan), kPatience), ErrorCode::wrong_link,
                         "another Context"));
  EXPECT_FALSE(loan.empty());
  ASSERT_TRUE(succeeds(pair.client.send(std::move(loan), kPatience)));
  EXPECT_TRUE(succeeds(pair.server.recv(kPatience)));
}

TEST_P(GpuLoanTest, AFullPoolIsWaitedForAndSaysWhoHoldsIt) {
  PipePair pair = connect({.device_cap_bytes = 32 << 20});
  Loan first = filled(pair.client, 1, 10 << 20);
  Loan second = filled(pair.client, 2, 10 << 20);
  const auto schema = loan_schema(10 << 20);
  EXPECT_TRUE(fails_with(pair.client.loan(schema, {.device = kGpu0}, 10ms),
                         ErrorCode::resource_exhausted, "loans"));
  const std::string text = pair.client_context.describe();
  EXPECT_NE(text.find("for peers on cuda:0: 25165824 bytes in use"), std::string::npos) << text;
  EXPECT_TRUE(fails_with(pair.client.loan(loan_schema(40 << 20), {.device = kGpu0}, kPatience),
                         ErrorCode::message_too_large, "device_cap_bytes"));
  auto third = std::async(std::launch::async,
                          [&] { return pair.client.loan(schema, {.device = kGpu0}, kPatience); });
  EXPECT_EQ(third.wait_for(0ms), std::future_status::timeout);
  ASSERT_TRUE(succeeds(pair.client.send(std::move(first), kPatience)));
  EXPECT_TRUE(succeeds(pair.server.recv(kPatience)));
  EXPECT_TRUE(succeeds(third.get()));
}

TEST_P(GpuLoanTest, AnAsynchronousSendTakesItToo) {
  PipePair pair = connect();
  const auto stream = make_stream();
  auto sent = pair.client.send_async(filled(pair.client, 3, 5000, stream), {.stream = stream});
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  {
    const auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(has(*received, 3));
  }
  EXPECT_TRUE(returns(pair.client_context));
}

TEST_P(GpuLoanTest, AnAsynchronousSendToAPeerThatReadsItIsNoCopy) {
  PipePair pair = connect();
  warm_up(pair);
  const std::uint64_t before = pair.client.stats().loans_sent;
  const auto stream = make_stream();
  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    auto sent = pair.client.send_async(filled(pair.client, seed, 5000, stream), {.stream = stream});
    const auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(has(*received, seed));
    EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  }
  if (way().transport == Transport::shm) {
    EXPECT_EQ(pair.client.stats().loans_sent, before + 3);
    EXPECT_EQ(pair.client.stats().copies_d2d, 0u);
  }
}

// The loan has left its stream by then.
TEST_P(GpuLoanTest, OneThatIsShownLaterArrivesBehindTheWorkThatFillsItToo) {
  PipePair pair = connect();
  warm_up(pair);
  std::int64_t count = 0;  // messages that fill the window
  while (pair.client.send(patterned(1, 10), 10ms)) ++count;
  const auto stream = make_stream();
  Gate gate(fake, stream);
  auto sent = pair.client.send_async(filled(pair.client, 3, 5000, stream), {.stream = stream});
  for (std::int64_t i = 0; i < count; ++i) ASSERT_TRUE(succeeds(pair.server.recv(kPatience)));
  // A client with Progress::manual shows the message in here.
  auto done = std::async(std::launch::async, [&] { return sent.wait(kPatience); });
  EXPECT_TRUE(fails_with(pair.server.recv(10ms), ErrorCode::timeout)) << "it is not filled yet";
  gate.open();
  const auto received = pair.server.recv(kPatience);
  ASSERT_TRUE(succeeds(received));
  EXPECT_TRUE(has(*received, 3));
  EXPECT_TRUE(succeeds(done.get()));
}

TEST_P(GpuLoanTest, WhatIsWrongIsRefused) {
  PipePair pair = connect();
  const auto schema = loan_schema(10);
  EXPECT_TRUE(fails_with(pair.client.loan(schema, {.device = {DeviceKind::cuda, 7}}, kPatience),
                         ErrorCode::unsupported_device, "cuda:7"));
  EXPECT_TRUE(fails_with(pair.client.loan(schema, {.device = {DeviceKind::rocm, 0}}, kPatience),
                         ErrorCode::unsupported_device, "rocm"));
  EXPECT_TRUE(fails_with(pair.client.loan(nullptr, {.device = kGpu0}, kPatience),
                         ErrorCode::invalid_argument, "schema"));
  EXPECT_TRUE(fails_with(
      pair.client.loan(schema, {.device = kGpu0, .stream = make_stream(kGpu1)}, kPatience),
      ErrorCode::invalid_argument, "another context"));
  Loan host = pair.client.loan(schema, LoanOptions{}, kPatience).value();
  EXPECT_EQ(host["x"].device(), cpu());
  Loan loan = filled(pair.client, 1, 10);
  EXPECT_TRUE(
      fails_with(pair.client.send(std::move(loan), kPatience, {.stream = make_stream(kGpu1)}),
                 ErrorCode::invalid_argument, "another context"));
  EXPECT_FALSE(loan.empty());
}

}  // namespace
}  // namespace tendon::test
