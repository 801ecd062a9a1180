// SPDX-License-Identifier: Apache-2.0
// A Server whose process may start no further thread.
#include <gtest/gtest.h>

#include <string>
#include <tendon/pipe/server.hpp>

#include "support/batches.hpp"
#include "support/no_threads.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

class ServerLimits : public PipeTest {};
TENDON_ON_BOTH_PATHS(ServerLimits);

TEST_P(ServerLimits, AClientWithoutAThreadIsRefusedAndTheNextIsServed) {
  Context context = Context::create({.name = "server", .transport = way().transport}).value();
  Context client = Context::create({.name = "client", .transport = way().transport}).value();
  Server server = Server::serve(context, "127.0.0.1:0", [](Pipe pipe) {
                    while (auto batch = pipe.recv(kPatience))
                      if (!pipe.send(*batch, kPatience)) return;
                  }).value();
  {
    const NoThreads none;
    Pipe refused = Pipe::connect(client, server.address(), kPatience).value();
    EXPECT_TRUE(fails_with(refused.recv(kPatience), ErrorCode::server_busy, "thread"));
    EXPECT_EQ(server.client_count(), 0u);
  }
  Pipe served = Pipe::connect(client, server.address(), kPatience).value();
  ASSERT_TRUE(succeeds(served.send(numbered(9), kPatience)));
  EXPECT_EQ(number_of(served.recv(kPatience).value()), 9);
}

TEST(ServerWithoutThreads, IsAnErrorOfServe) {
  Context context = Context::create({.name = "server"}).value();
  const NoThreads none;
  EXPECT_TRUE(fails_with(Server::serve(context, "127.0.0.1:0", [](Pipe) {}),
                         ErrorCode::resource_exhausted, "no thread can start that accepts"));
}

}  // namespace
}  // namespace tendon::test
