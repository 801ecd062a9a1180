// SPDX-License-Identifier: Apache-2.0
// A link of a Context to itself is an ordinary link; one thread can drive both ends.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class SelfLink : public PipeTest {
 protected:
  void SetUp() override {
    context_ =
        Context::create(
            {.name = "self", .progress = way().client_progress, .transport = way().transport})
            .value();
    listener_ = Listener::bind(*context_, "127.0.0.1:0").value();
    from_ = Pipe::connect(*context_, listener_->address(), kPatience).value();
    to_ = listener_->accept(kPatience).value();
  }
  std::optional<Context> context_;
  std::optional<Listener> listener_;
  std::optional<Pipe> from_;
  std::optional<Pipe> to_;
};
TENDON_ON_EVERY_WAY(SelfLink);

TEST_P(SelfLink, PassesMessagesBothWays) {
  EXPECT_EQ(from_->peer().context, context_->id());
  EXPECT_EQ(to_->peer().context, context_->id());
  EXPECT_EQ(from_->path().kind, way().is_shm() ? PathKind::shm : PathKind::tcp);
  for (std::uint64_t n = 0; n < 50; ++n) {
    ASSERT_TRUE(succeeds(from_->send(patterned(n, n * 500), kPatience)));
    ASSERT_TRUE(succeeds(to_->send(patterned(n + 1, n * 500), kPatience)));
    ASSERT_TRUE(is_patterned(to_->recv(kPatience).value(), n, n * 500));
    ASSERT_TRUE(is_patterned(from_->recv(kPatience).value(), n + 1, n * 500));
  }
}

TEST_P(SelfLink, LoansToo) {
  Loan loan = from_->loan(bytes_schema(100'000), kPatience).value();
  fill_pattern(loan["x"].mutable_bytes(), 4);
  ASSERT_TRUE(succeeds(from_->send(std::move(loan), kPatience)));
  EXPECT_TRUE(is_patterned(to_->recv(kPatience).value(), 4, 100'000));
}

TEST_P(SelfLink, SeveralPipes) {
  Pipe from = Pipe::connect(*context_, listener_->address(), kPatience).value();
  Pipe to = listener_->accept(kPatience).value();
  ASSERT_TRUE(succeeds(from.send(numbered(2), kPatience)));
  ASSERT_TRUE(succeeds(from_->send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(to.recv(kPatience).value()), 2);
  EXPECT_EQ(number_of(to_->recv(kPatience).value()), 1);
}

TEST_P(SelfLink, CloseEndsTheOtherEnd) {
  ASSERT_TRUE(succeeds(from_->send(numbered(1), kPatience)));
  ASSERT_TRUE(succeeds(from_->close(kPatience)));
  EXPECT_EQ(number_of(to_->recv(kPatience).value()), 1);
  EXPECT_TRUE(fails_with(to_->recv(kPatience), ErrorCode::end_of_stream));
  ASSERT_TRUE(succeeds(context_->close(kPatience)));
}

}  // namespace
}  // namespace tendon::test
