// SPDX-License-Identifier: Apache-2.0
// A server that is closed, dropped or failed by one of its own handlers.
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <tendon/pipe/server.hpp>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

class ServerInHandler : public PipeTest {
 protected:
  Context context_ = Context::create({.name = "server", .transport = way().transport}).value();
  Context client_ = Context::create({.name = "client", .transport = way().transport}).value();
};
TENDON_ON_BOTH_PATHS(ServerInHandler);

TEST_P(ServerInHandler, CloseReturnsAtOnceAndTheClientIsAnswered) {
  std::optional<Server> server;
  std::promise<Result<void>> closed;
  server = Server::serve(context_, "127.0.0.1:0", [&](Pipe pipe) {
             ASSERT_TRUE(succeeds(pipe.recv(kPatience)));
             closed.set_value(server->close(Deadline::never()));
             EXPECT_TRUE(succeeds(pipe.send(numbered(7), kPatience)));
           }).value();
  const std::string address = server->address();
  Pipe pipe = Pipe::connect(client_, address, kPatience).value();
  ASSERT_TRUE(succeeds(pipe.send(numbered(1), kPatience)));
  EXPECT_TRUE(succeeds(closed.get_future().get()));
  EXPECT_EQ(number_of(pipe.recv(kPatience).value()), 7);
  EXPECT_TRUE(fails_with(Pipe::connect(client_, address, Deadline::now()), ErrorCode::unreachable));
  EXPECT_TRUE(succeeds(server->close(kPatience)));
  EXPECT_EQ(server->client_count(), 0u);
}

TEST_P(ServerInHandler, TheLastHandlerFreesADroppedServer) {
  auto server = std::make_unique<std::optional<Server>>();
  const auto witness = std::make_shared<int>(0);
  *server = Server::serve(context_, "127.0.0.1:0", [&, kept = witness](Pipe pipe) {
              if (number_of(pipe.recv(kPatience).value()) == 1) server.reset();
              static_cast<void>(pipe.send(numbered(7), kPatience));
              static_cast<void>(pipe.recv(kPatience));
            }).value();
  const std::string address = (*server)->address();
  Pipe other = Pipe::connect(client_, address, kPatience).value();
  ASSERT_TRUE(succeeds(other.send(numbered(2), kPatience)));
  ASSERT_EQ(number_of(other.recv(kPatience).value()), 7);
  {
    Pipe pipe = Pipe::connect(client_, address, kPatience).value();
    ASSERT_TRUE(succeeds(pipe.send(numbered(1), kPatience)));
    EXPECT_EQ(number_of(pipe.recv(kPatience).value()), 7) << "its own pipe goes on";
    EXPECT_TRUE(fails_with(other.recv(kPatience), ErrorCode::cancelled)) << "as by a destructor";
  }
  EXPECT_TRUE(eventually([&] { return witness.use_count() == 1; })) << "the server is gone";
}

TEST_P(ServerInHandler, AnExceptionIsTheClientsHandlerFailed) {
  Server server = Server::serve(context_, "127.0.0.1:0", [](const Pipe&) {
                    throw std::runtime_error("broken handler");
                  }).value();
  Pipe pipe = Pipe::connect(client_, server.address(), kPatience).value();
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::handler_failed, "broken handler"));
}

}  // namespace
}  // namespace tendon::test
