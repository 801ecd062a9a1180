// SPDX-License-Identifier: Apache-2.0
// The window of a pipe over sockets: how much the sender may have in flight, and how much the
// receiver admits.
#include <gtest/gtest.h>

#include <tendon/session/limits.hpp>
#include <thread>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

class Window : public PipeTest {};
TENDON_ON_EVERY_WAY(Window);

// Messages that were taken but not yet reported must not block a message that needs the whole
// window, or more.
TEST_P(Window, AMessageAsLargeAsTheWindowFollowsASmallOneThatWasTaken) {
  PipePair pair = connect();
  for (const std::uint64_t size : {kPipeWindowBytes - 100, kPipeWindowBytes + (8 << 20)}) {
    for (std::int64_t n = 0; n < 3; ++n) {
      ASSERT_TRUE(succeeds(pair.client.send(numbered(n), kPatience)));
      ASSERT_EQ(number_of(pair.server.recv(kPatience).value()), n);
    }
    std::thread sender(
        [&] { EXPECT_TRUE(succeeds(pair.client.send(patterned(1, size), kPatience))); });
    const auto received = pair.server.recv(kPatience);
    sender.join();
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(is_patterned(*received, 1, size));
  }
}

// One is in flight while the other is taken; otherwise a stream of large messages would stall after
// each.
TEST_P(Window, OfMessagesLargerThanTheWindowTwoMayWait) {
  constexpr std::uint64_t kSize = kPipeWindowBytes + (4 << 20);
  ContextOptions options;
  options.link_cap_bytes = std::uint64_t{512} << 20;
  PipePair pair = connect(options, options);
  for (std::uint64_t n = 0; n < 2; ++n)
    ASSERT_TRUE(succeeds(pair.client.send(patterned(n, kSize), kPatience)));
  for (std::uint64_t n = 0; n < 2; ++n) {
    const auto received = pair.server.recv(kPatience);
    ASSERT_TRUE(succeeds(received));
    EXPECT_TRUE(is_patterned(*received, n, kSize));
  }
}

}  // namespace
}  // namespace tendon::test
