// SPDX-License-Identifier: Apache-2.0
// docs/memory.md, "Where messages lie": handles may be destroyed in any order, with views alive.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class DestructionOrder : public PipeTest {};
TENDON_ON_BOTH_PATHS(DestructionOrder);

TEST_P(DestructionOrder, IsFree) {
  // Tries every order of the five handles; a view and a loan are read after each step.
  std::array<int, 5> order{0, 1, 2, 3, 4};
  do {
    PipePair pair = connect();
    std::optional<Context> client_context = std::move(pair.client_context);
    std::optional<Context> server_context = std::move(pair.server_context);
    std::optional<Listener> listener = std::move(pair.listener);
    std::optional<Pipe> client = std::move(pair.client);
    std::optional<Pipe> server = std::move(pair.server);
    ASSERT_TRUE(succeeds(client->send(patterned(1, 30'000), kPatience)));
    ASSERT_TRUE(succeeds(client->send(patterned(3, 100), kPatience)));
    const TensorDict view = server->recv(kPatience).value();
    const TensorDict small = server->recv(kPatience).value();
    Loan loan = server->loan(bytes_schema(20'000), kPatience).value();
    fill_pattern(loan["x"].mutable_bytes(), 2);
    const Completion<TensorDict> pending = client->recv_async();
    for (const int which : order) {
      switch (which) {
        case 0:
          client_context.reset();
          break;
        case 1:
          server_context.reset();
          break;
        case 2:
          listener.reset();
          break;
        case 3:
          client.reset();
          break;
        case 4:
          server.reset();
          break;
      }
      ASSERT_TRUE(is_patterned(view, 1, 30'000));
      ASSERT_TRUE(is_patterned(small, 3, 100));
      ASSERT_TRUE(is_patterned(loan.dict(), 2, 20'000));
    }
  } while (std::ranges::next_permutation(order).found);
}

TEST_P(DestructionOrder, AViewReleasedAfterEverythingElseIsHarmless) {
  std::optional<TensorDict> view;
  {
    PipePair pair = connect();
    ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 30'000), kPatience)));
    view = pair.server.recv(kPatience).value();
  }
  view.reset();
}

TEST_P(DestructionOrder, ClosingAPipeWhileViewsLiveIsNormalAndTheirSlotsComeBackLater) {
  PipePair pair = connect({.link_cap_bytes = 1 << 20, .pool_cap_bytes = 1 << 20});
  std::optional<TensorDict> view;
  {
    auto [from, to] = another_pipe(pair);
    ASSERT_TRUE(succeeds(from.send(patterned(1, 400'000), kPatience)));
    view = to.recv(kPatience).value();
    ASSERT_TRUE(succeeds(from.close(kPatience)));
  }
  ASSERT_TRUE(is_patterned(*view, 1, 400'000));
  view.reset();
  // Another pipe of the link can take both slots of the cap again.
  Loan first = pair.client.loan(bytes_schema(400'000), kPatience).value();
  EXPECT_TRUE(succeeds(pair.client.loan(bytes_schema(400'000), kPatience)));
}

}  // namespace
}  // namespace tendon::test
