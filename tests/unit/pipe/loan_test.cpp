// SPDX-License-Identifier: Apache-2.0
// docs/memory.md, "When may I reuse it?": memory that is handed over.
#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Loans : public PipeTest {
 protected:
  static Loan filled(Pipe& pipe, std::uint64_t seed, std::uint64_t size) {
    Loan loan = pipe.loan(bytes_schema(size), kPatience).value();
    fill_pattern(loan["x"].mutable_bytes(), seed);
    return loan;
  }
};
TENDON_ON_EVERY_WAY(Loans);

TEST_P(Loans, IsFilledSentAndEmptyAfterwards) {
  PipePair pair = connect();
  Loan loan = filled(pair.client, 1, 50'000);
  loan.set("step", 3);
  EXPECT_FALSE(loan.empty());
  ASSERT_TRUE(succeeds(pair.client.send(std::move(loan), kPatience)));
  EXPECT_TRUE(loan.empty());
  EXPECT_TRUE(fails_with(loan.find("x"), ErrorCode::not_found));
  const TensorDict received = pair.server.recv(kPatience).value();
  EXPECT_TRUE(is_patterned(received, 1, 50'000));
  EXPECT_EQ(received.value("step").as_i64(), 3);
  EXPECT_EQ(pair.client.stats().loans_sent, 1u);
}

TEST_P(Loans, LeavesAreContiguousAlignedAndWritable) {
  PipePair pair = connect();
  const auto schema =
      Schema::make({{"a", DType::u8, {3}}, {"deep/b", DType::f64, {7, 5}}, {"c", DType::f32, {0}}});
  Loan loan = pair.client.loan(schema.value(), kPatience).value();
  for (const auto& [path, tensor] : loan.dict()) {
    EXPECT_TRUE(tensor.is_contiguous()) << path;
    EXPECT_EQ(tensor.access(), Access::read_write) << path;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % kLeafAlignmentBytes, 0u) << path;
  }
  EXPECT_EQ(loan["deep/b"].shape(), Shape({7, 5}));
}

TEST_P(Loans, OnSharedMemoryNothingIsCopied) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(filled(pair.client, 1, 1 << 20), kPatience)));
  const TensorDict received = pair.server.recv(kPatience).value();
  EXPECT_TRUE(is_patterned(received, 1, 1 << 20));
  if (way().is_shm()) {
    EXPECT_EQ(pair.client.stats().copies, 0u);
    EXPECT_EQ(pair.client.stats().bytes_copied, 0u);
    EXPECT_EQ(pair.server.stats().copies, 0u);
  }
}

TEST_P(Loans, OfAnotherLinkIsRefusedAndKept) {
  PipePair pair = connect();
  PipePair other = connect();
  Loan loan = filled(other.client, 1, 50'000);
  EXPECT_TRUE(fails_with(pair.client.send(std::move(loan), kPatience), ErrorCode::wrong_link));
  ASSERT_FALSE(loan.empty());
  EXPECT_TRUE(is_patterned(loan.dict(), 1, 50'000));
  ASSERT_TRUE(succeeds(other.client.send(std::move(loan), kPatience)));
  EXPECT_TRUE(is_patterned(other.server.recv(kPatience).value(), 1, 50'000));
}

TEST_P(Loans, OfAnotherPipeOnTheSameLinkIsFine) {
  PipePair pair = connect();
  auto [client2, server2] = another_pipe(pair);
  ASSERT_TRUE(succeeds(client2.send(filled(pair.client, 1, 50'000), kPatience)));
  EXPECT_TRUE(is_patterned(server2.recv(kPatience).value(), 1, 50'000));
}

TEST_P(Loans, AnEmptyLoanCannotBeSentAgain) {
  PipePair pair = connect();
  Loan loan = filled(pair.client, 1, 100);
  ASSERT_TRUE(succeeds(pair.client.send(std::move(loan), kPatience)));
  EXPECT_TRUE(
      fails_with(pair.client.send(std::move(loan), kPatience), ErrorCode::invalid_argument));
  EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 1, 100));
  EXPECT_TRUE(fails_with(pair.server.recv(0s), ErrorCode::timeout));
}

TEST_P(Loans, ADroppedLoanGivesItsSlotBack) {
  PipePair pair = connect({.link_cap_bytes = 1 << 20, .pool_cap_bytes = 1 << 20});
  for (int i = 0; i < 100; ++i) {
    auto loan = pair.client.loan(bytes_schema(200'000), 0s);
    ASSERT_TRUE(succeeds(loan)) << i;
  }
}

TEST_P(Loans, WhenNoneIsFreeTheErrorNamesPeerSlotsAndBytes) {
  PipePair pair = connect({.link_cap_bytes = 1 << 20, .pool_cap_bytes = 1 << 20});
  std::vector<Loan> loans;
  std::optional<Error> refused;
  while (!refused && loans.size() < 100) {
    auto loan = pair.client.loan(bytes_schema(200'000), 0s);
    if (loan)
      loans.push_back(*std::move(loan));
    else
      refused = loan.error();
  }
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::resource_exhausted) << refused->message();
  EXPECT_GE(loans.size(), 2u);
  EXPECT_NE(refused->detail.find(std::to_string(loans.size())), std::string::npos)
      << refused->detail;
  EXPECT_NE(refused->detail.find(std::to_string(1 << 20)), std::string::npos) << refused->detail;
  if (way().is_shm()) {
    EXPECT_NE(refused->detail.find("server"), std::string::npos) << refused->detail;
  }
  // With a deadline it waits for a slot, but none is returned.
  EXPECT_TRUE(
      fails_with(pair.client.loan(bytes_schema(200'000), kBriefly), ErrorCode::resource_exhausted));
  loans.pop_back();
  EXPECT_TRUE(succeeds(pair.client.loan(bytes_schema(200'000), 0s)));
}

TEST_P(Loans, AFailedSendLeavesTheLoanWithItsBytes) {
  PipePair pair = connect();
  Loan loan = filled(pair.client, 9, 50'000);
  pair.client.cancel();
  EXPECT_TRUE(fails_with(pair.client.send(std::move(loan), kPatience), ErrorCode::cancelled));
  ASSERT_FALSE(loan.empty());
  EXPECT_TRUE(is_patterned(loan.dict(), 9, 50'000));
}

TEST_P(Loans, ALoanOutlivesItsPipeAndItsContext) {
  std::optional<Loan> loan;
  {
    PipePair pair = connect();
    loan = filled(pair.client, 2, 50'000);
  }
  EXPECT_TRUE(is_patterned(loan->dict(), 2, 50'000));
  fill_pattern((*loan)["x"].mutable_bytes(), 3);
}

TEST_P(Loans, AReceivedDictIsForwardedByACopyThatIsCounted) {
  // Three parties: one context sends, one forwards, one receives.
  PipePair first = connect();
  Context third = Context::create({.name = "third", .transport = way().transport}).value();
  Listener listener = Listener::bind(third, "127.0.0.1:0").value();
  Pipe onward = Pipe::connect(first.server_context, listener.address(), kPatience).value();
  Pipe end = listener.accept(kPatience).value();
  ASSERT_TRUE(succeeds(first.client.send(patterned(4, 100'000), kPatience)));
  const TensorDict received = first.server.recv(kPatience).value();
  ASSERT_TRUE(succeeds(onward.send(received, kPatience)));
  EXPECT_TRUE(is_patterned(end.recv(kPatience).value(), 4, 100'000));
  EXPECT_TRUE(is_patterned(received, 4, 100'000));
  if (way().is_shm()) {
    EXPECT_EQ(onward.stats().copied_other_link, 1u);
  }
}

}  // namespace
}  // namespace tendon::test
