// SPDX-License-Identifier: Apache-2.0
// An exception of a callback ends nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

class Callbacks : public PipeTest {};
TENDON_ON_EVERY_WAY(Callbacks);

TEST_P(Callbacks, WhateverOneThrowsTheNextRuns) {
  PipePair pair = connect();
  std::atomic<int> ran{0};
  for (int n = 0; n < 3; ++n) {
    Completion<TensorDict> received = pair.client.recv_async();
    received.on_done([&ran, n](Result<TensorDict>) {
      ++ran;
      if (n == 0) throw 7;
      if (n == 1) throw std::runtime_error("thrown by a test");
    });
    ASSERT_TRUE(succeeds(pair.server.send(numbered(n), kPatience)));
    ASSERT_TRUE(eventually([&] { return ran == n + 1; }, [&] { pair.client_context.progress(); }));
  }
}

}  // namespace
}  // namespace tendon::test
