// SPDX-License-Identifier: Apache-2.0
// Several pipes of a pair of contexts, several clients of a server.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <tendon/pipe/server.hpp>
#include <tendon/session/limits.hpp>
#include <thread>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/idle_pipes.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class SeveralPipes : public PipeTest {
 protected:
  Context client(std::string name = "client") {
    return Context::create({.name = std::move(name),
                            .progress = way().client_progress,
                            .transport = way().transport})
        .value();
  }
};
TENDON_ON_EVERY_WAY(SeveralPipes);

TEST_P(SeveralPipes, ConnectThenAcceptInOneThread) {
  // connect() returns when the peer's context has answered, before accept().
  Context server = Context::create({.transport = way().transport}).value();
  Context from = client();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  std::vector<Pipe> connected;
  for (std::int64_t n = 0; n < 5; ++n) {
    connected.push_back(Pipe::connect(from, listener.address(), kPatience).value());
    ASSERT_TRUE(succeeds(connected.back().send(numbered(n), kPatience)))
        << "before it was accepted";
  }
  for (std::int64_t n = 0; n < 5; ++n) {
    Pipe accepted = listener.accept(kPatience).value();
    EXPECT_EQ(number_of(accepted.recv(kPatience).value()), n);
    ASSERT_TRUE(succeeds(accepted.send(numbered(-n), kPatience)));
    EXPECT_EQ(number_of(connected[static_cast<std::size_t>(n)].recv(kPatience).value()), -n);
  }
}

TEST_P(SeveralPipes, ShareOneLink) {
  PipePair pair = connect();
  std::vector<std::pair<Pipe, Pipe>> pipes;
  for (int i = 0; i < 30; ++i) pipes.push_back(another_pipe(pair));
  EXPECT_EQ(pair.client_context.members().size(), 1u);
  EXPECT_EQ(pair.server_context.members().size(), 1u);
  EXPECT_EQ(detail::ContextCore::of(pair.client_context)->links().all()->size(), 1u);
  for (std::size_t i = 0; i < pipes.size(); ++i)
    ASSERT_TRUE(succeeds(pipes[i].first.send(numbered(static_cast<std::int64_t>(i)), kPatience)));
  for (std::size_t i = pipes.size(); i-- > 0;)
    EXPECT_EQ(number_of(pipes[i].second.recv(kPatience).value()), static_cast<std::int64_t>(i));
}

TEST_P(SeveralPipes, OneThatNobodyReadsDoesNotStopTheOthers) {
  PipePair pair = connect();
  auto [client2, server2] = another_pipe(pair);
  std::int64_t unread = 0;
  while (pair.server.send(numbered(unread), 0s)) ASSERT_LT(++unread, 5000);
  for (std::int64_t n = 0; n < 500; ++n) {
    ASSERT_TRUE(succeeds(server2.send(numbered(n), kPatience)));
    ASSERT_EQ(number_of(client2.recv(kPatience).value()), n);
  }
  for (std::int64_t n = 0; n < unread; ++n)
    ASSERT_EQ(number_of(pair.client.recv(kPatience).value()), n);
}

TEST_P(SeveralPipes, ClosedOnesMakeRoomForNewOnes) {
  PipePair pair = connect();
  for (std::int64_t n = 0; n < 200; ++n) {
    auto [from, to] = another_pipe(pair);
    ASSERT_TRUE(succeeds(from.send(numbered(n), kPatience)));
    ASSERT_EQ(number_of(to.recv(kPatience).value()), n);
    if (n % 2 == 0) {
      ASSERT_TRUE(succeeds(from.close(kPatience)));
    }
  }
  EXPECT_EQ(detail::ContextCore::of(pair.client_context)->links().all()->size(), 1u);
}

TEST_P(SeveralPipes, ConnectionsAtTheSameTimeFromManyThreadsShareOneLink) {
  Context server = Context::create({.transport = way().transport}).value();
  Context from = client();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  std::vector<std::optional<Pipe>> connected(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < connected.size(); ++i) {
    threads.emplace_back([&, i] {
      auto pipe = Pipe::connect(from, listener.address(), kPatience);
      ASSERT_TRUE(succeeds(pipe));
      connected[i] = *std::move(pipe);
      ASSERT_TRUE(succeeds(connected[i]->send(numbered(static_cast<std::int64_t>(i)), kPatience)));
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(from.members().size(), 1u);
  EXPECT_EQ(detail::ContextCore::of(from)->links().all()->size(), 1u);
  std::int64_t sum = 0;
  std::vector<Pipe> accepted;
  for (std::size_t i = 0; i < connected.size(); ++i) {
    accepted.push_back(listener.accept(kPatience).value());
    sum += number_of(accepted.back().recv(kPatience).value());
  }
  EXPECT_EQ(sum, 28);
}

TEST_P(SeveralPipes, ManyClientsOfOneListener) {
  Context server = Context::create({.transport = way().transport}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  std::vector<Context> contexts;
  std::vector<Pipe> clients;
  std::vector<Pipe> accepted;
  for (int i = 0; i < 10; ++i) {
    contexts.push_back(client("client" + std::to_string(i)));
    clients.push_back(Pipe::connect(contexts.back(), listener.address(), kPatience).value());
    accepted.push_back(listener.accept(kPatience).value());
    EXPECT_EQ(accepted.back().peer().name, "client" + std::to_string(i));
  }
  EXPECT_EQ(server.members().size(), 10u);
  for (std::int64_t i = 0; i < 10; ++i)
    ASSERT_TRUE(succeeds(clients[i].send(numbered(i), kPatience)));
  for (std::int64_t i = 9; i >= 0; --i)
    EXPECT_EQ(number_of(accepted[i].recv(kPatience).value()), i);
}

TEST_P(SeveralPipes, TheBacklogIsSixtyFourThenServerBusy) {
  Context server = Context::create({.transport = way().transport}).value();
  Context from = client();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  std::vector<Pipe> waiting;
  for (int i = 0; i < 64; ++i) {
    auto pipe = Pipe::connect(from, listener.address(), kPatience);
    ASSERT_TRUE(succeeds(pipe)) << i;
    waiting.push_back(*std::move(pipe));
  }
  EXPECT_TRUE(
      fails_with(Pipe::connect(from, listener.address(), kPatience, {.absent = Absent::fail}),
                 ErrorCode::server_busy, "64"));
  EXPECT_TRUE(fails_with(Pipe::connect(from, listener.address(), 100ms), ErrorCode::server_busy,
                         "times until the deadline"))
      << "there may be a place soon";
  Pipe accepted = listener.accept(kPatience).value();
  EXPECT_TRUE(succeeds(Pipe::connect(from, listener.address(), kPatience)));
}

TEST_P(SeveralPipes, AServerServesEachClientOnItsOwn) {
  Context context = Context::create({.transport = way().transport}).value();
  Server server = Server::serve(context, "127.0.0.1:0", [](Pipe pipe) {
                    for (Result<TensorDict>& batch : pipe.each(kPatience)) {
                      if (!batch) return;
                      (void)pipe.send(numbered(number_of(*batch) * 2), kPatience);
                    }
                    (void)pipe.close(kPatience);
                  }).value();
  std::vector<Context> contexts;
  std::vector<Pipe> pipes;
  for (int i = 0; i < 6; ++i) {
    contexts.push_back(client());
    pipes.push_back(Pipe::connect(contexts.back(), server.address(), kPatience).value());
  }
  for (std::int64_t round = 0; round < 10; ++round) {
    for (std::int64_t i = 0; i < 6; ++i)
      ASSERT_TRUE(succeeds(pipes[i].send(numbered(round * 10 + i), kPatience)));
    for (std::int64_t i = 5; i >= 0; --i)
      ASSERT_EQ(number_of(pipes[i].recv(kPatience).value()), (round * 10 + i) * 2);
  }
  EXPECT_EQ(server.client_count(), 6u);
  for (Pipe& pipe : pipes) ASSERT_TRUE(succeeds(pipe.finish_sending(kPatience)));
  for (Pipe& pipe : pipes) EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::end_of_stream));
  EXPECT_TRUE(succeeds(server.close(kPatience)));
  EXPECT_EQ(server.client_count(), 0u);
}

TEST_P(SeveralPipes, AHandlerThatThrowsClosesItsPipeWithTheReason) {
  Context context = Context::create({.transport = way().transport}).value();
  Server server = Server::serve(context, "127.0.0.1:0", [](Pipe pipe) {
                    (void)pipe.recv(kPatience);
                    throw std::runtime_error("no such model: mini-7");
                  }).value();
  Context from = client();
  Pipe pipe = Pipe::connect(from, server.address(), kPatience).value();
  ASSERT_TRUE(succeeds(pipe.send(numbered(1), kPatience)));
  const auto answer = pipe.recv(kPatience);
  ASSERT_FALSE(answer);
  EXPECT_NE(answer.error().code, ErrorCode::timeout);
  EXPECT_NE(answer.error().detail.find("no such model: mini-7"), std::string::npos)
      << answer.error().message();
  Pipe next = Pipe::connect(from, server.address(), kPatience).value();
  EXPECT_TRUE(succeeds(next.send(numbered(1), kPatience))) << "the server lives on";
}

TEST_P(SeveralPipes, AServerAtItsLimitAnswersServerBusy) {
  Context context = Context::create({.transport = way().transport}).value();
  std::atomic<bool> go{false};
  Server server = Server::serve(context, "127.0.0.1:0",
                                [](Pipe pipe) { (void)pipe.recv(kPatience); }, {.max_clients = 2})
                      .value();
  Context from = client();
  Pipe first = Pipe::connect(from, server.address(), kPatience).value();
  Pipe second = Pipe::connect(from, server.address(), kPatience).value();
  ASSERT_TRUE(eventually([&] { return server.client_count() == 2; }, [&] { from.progress(); }));
  // Refused either while connecting or with the first call.
  auto third = Pipe::connect(from, server.address(), kPatience);
  if (third) {
    EXPECT_TRUE(fails_with(third->recv(kPatience), ErrorCode::server_busy));
  } else {
    EXPECT_TRUE(fails_with(third, ErrorCode::server_busy));
  }
  ASSERT_TRUE(succeeds(first.send(numbered(1), kPatience)));
  ASSERT_TRUE(eventually([&] { return server.client_count() == 1; }, [&] { from.progress(); }));
  EXPECT_TRUE(succeeds(Pipe::connect(from, server.address(), kPatience)));
}

TEST_P(SeveralPipes, DestroyingAServerCancelsItsClients) {
  Context context = Context::create({.transport = way().transport}).value();
  Context from = client();
  std::optional<Pipe> pipe;
  {
    Server server = Server::serve(context, "127.0.0.1:0", [](Pipe served) {
                      (void)served.recv(Deadline::never());
                    }).value();
    pipe = Pipe::connect(from, server.address(), kPatience).value();
    ASSERT_TRUE(eventually([&] { return server.client_count() == 1; }, [&] { from.progress(); }));
  }
  EXPECT_TRUE(fails_with(pipe->recv(kPatience), ErrorCode::cancelled));
}

class ManyPipes : public PipeTest {
 protected:
  static std::shared_ptr<detail::Link> link_of(const Context& context) {
    return detail::ContextCore::of(context)->links().all()->front();
  }
  static void expect_the_limit_named(const Error& error) {
    EXPECT_NE(error.detail.find(std::to_string(kMaxPipesPerLink)), std::string::npos)
        << error.message();
    EXPECT_NE(error.detail.find("kMaxPipesPerLink"), std::string::npos) << error.message();
  }
};
TENDON_ON_BOTH_PATHS(ManyPipes);

TEST_P(ManyPipes, TheLimitPerLinkIsNamed) {
  PipePair pair = connect();
  fill_with_idle_pipes(*link_of(pair.client_context), 1);
  const auto last = another_pipe(pair);
  const auto beyond = Pipe::connect(pair.client_context, pair.listener.address(), kPatience);
  ASSERT_TRUE(fails_with(beyond, ErrorCode::limit_exceeded));
  expect_the_limit_named(beyond.error());
  ASSERT_TRUE(succeeds(pair.client.send(numbered(1), kPatience)));
  EXPECT_EQ(number_of(pair.server.recv(kPatience).value()), 1);
}

// The connecting side receives the refusal when it uses the pipe.
TEST_P(ManyPipes, TheLimitPerLinkIsNamedByThePeerToo) {
  PipePair pair = connect();
  fill_with_idle_pipes(*link_of(pair.server_context), 1);
  const auto last = another_pipe(pair);
  auto beyond = Pipe::connect(pair.client_context, pair.listener.address(), kPatience).value();
  const auto refused = beyond.recv(kPatience);
  ASSERT_TRUE(fails_with(refused, ErrorCode::server_busy));
  expect_the_limit_named(refused.error());
}

}  // namespace
}  // namespace tendon::test
