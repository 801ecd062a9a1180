// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Iteration : public PipeTest {};
TENDON_ON_EVERY_WAY(Iteration);

TEST_P(Iteration, EndsAtTheEndOfTheStream) {
  PipePair pair = connect();
  for (std::int64_t n = 0; n < 5; ++n)
    ASSERT_TRUE(succeeds(pair.client.send(numbered(n), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.close(kPatience)));
  std::vector<std::int64_t> seen;
  for (Result<TensorDict>& batch : pair.server.each(kPatience)) {
    ASSERT_TRUE(succeeds(batch));
    seen.push_back(number_of(*batch));
  }
  EXPECT_EQ(seen, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
}

TEST_P(Iteration, AnErrorIsTheLastItem) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(numbered(1), kPatience)));
  ASSERT_TRUE(succeeds(pair.client.flush(kPatience)));
  std::vector<bool> seen;
  for (Result<TensorDict>& batch : pair.server.each(kPatience)) {
    seen.push_back(batch.has_value());
    if (batch)
      pair.client.cancel();
    else
      EXPECT_EQ(batch.error().code, ErrorCode::cancelled);
    ASSERT_LE(seen.size(), 2u);
  }
  EXPECT_EQ(seen, (std::vector<bool>{true, false}));
}

TEST_P(Iteration, ATimeoutIsAnErrorOfThatItem) {
  PipePair pair = connect();
  int items = 0;
  for (Result<TensorDict>& batch : pair.server.each(kBriefly)) {
    EXPECT_TRUE(fails_with(batch, ErrorCode::timeout));
    ASSERT_EQ(++items, 1);
  }
  EXPECT_EQ(items, 1);
  // The stream itself is unharmed.
  ASSERT_TRUE(succeeds(pair.client.send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 1);
}

TEST_P(Iteration, NanosecondsMaxWaitsForEver) {
  PipePair pair = connect();
  std::thread producer([&] {
    for (std::int64_t n = 0; n < 3; ++n)
      EXPECT_TRUE(succeeds(pair.client.send(numbered(n), kPatience)));
    EXPECT_TRUE(succeeds(pair.client.close(kPatience)));
  });
  std::int64_t next = 0;
  for (Result<TensorDict>& batch : pair.server.each(std::chrono::nanoseconds::max()))
    EXPECT_EQ(number_of(batch.value()), next++);
  EXPECT_EQ(next, 3);
  producer.join();
}

}  // namespace
}  // namespace tendon::test
