// SPDX-License-Identifier: Apache-2.0
// docs/fork.md, "Fork": a receiver that forked, as a data loader does.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <optional>
#include <string>
#include <tendon/fabric/node.hpp>
#include <tendon/group/group.hpp>
#include <tendon/observe/log.hpp>
#include <tendon/pipe/server.hpp>
#include <thread>
#include <vector>

#include "process/peer.hpp"
#include "process/survivor.hpp"
#include "support/child.hpp"
#include "support/group_members.hpp"
#include "support/pipe_pair.hpp"
#include "support/sanitizer.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Fork : public PathTest {
 protected:
  // The orphaned child of a killed peer becomes a child of this process, which can see its end.
  void SetUp() override { ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0); }
  void TearDown() override { prctl(PR_SET_CHILD_SUBREAPER, 0); }
  /// Many sizes, so that segments are made and pages touched all the time.
  static std::uint64_t size_of(std::uint64_t n) { return 1 + (n * 7919) % 1'000'000; }
};
TENDON_ON_BOTH_TRANSPORTS(Fork);

TEST_P(Fork, AKilledReceiverFreesItsSlotsAlthoughItsChildLives) {
  Survivor survivor(GetParam());
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(succeeds(pipe.send(patterned(1, 100'000), kPatience)));
  ASSERT_TRUE(is_ok(peer.ask("recv 1 100000")));
  const auto link = survivor.link();
  const pid_t child = std::stoi(value_of(peer.ask("fork")));
  peer.kill_and_wait();
  EXPECT_TRUE(fails_with(pipe.recv(kPatience), ErrorCode::peer_lost, "victim"));
  EXPECT_TRUE(eventually([&] {
    const auto slots = link->stats().slots;
    return slots.sent_count + slots.quarantined_count == 0;
  }));
  EXPECT_EQ(kill(child, 0), 0) << "the child must still live";
  EXPECT_TRUE(is_ok(peer.line()));  // the child takes over
  if (is_shm()) {
    peer.tell("touch");
    EXPECT_TRUE(killed_by(wait_for(child), SIGSEGV)) << "a received array is not mapped in a child";
  } else {
    peer.tell("exit");
    EXPECT_TRUE(exited_with(wait_for(child), 0));
  }
  survivor.expect_alive(GetParam());
}

TEST_P(Fork, InTheChildEveryCallAnswersForkedAndDestructorsAreHarmless) {
  Survivor survivor(GetParam());
  Peer peer(victim());
  Pipe pipe = survivor.meet(peer);
  ASSERT_TRUE(succeeds(pipe.send(patterned(1, 100'000), kPatience)));
  ASSERT_TRUE(is_ok(peer.ask("recv 1 100000")));
  ASSERT_TRUE(is_ok(peer.ask("loan 2 50000")));
  const pid_t child = std::stoi(value_of(peer.ask("fork")));
  peer.kill_and_wait();
  ASSERT_TRUE(is_ok(peer.line()));
  EXPECT_TRUE(is_ok(peer.ask("every-call")));
  EXPECT_TRUE(is_ok(peer.ask("destroy")));
  peer.tell("exit");
  EXPECT_TRUE(exited_with(wait_for(child), 0));
}

TEST_P(Fork, TheParentGoesOnWhileAndAfterItsChildDestroysItsCopies) {
  // In one process, because the test must ask the parent after the child's end.
  PipePair pair = connect_pair({"", GetParam()});
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 100'000), kPatience)));
  std::optional<TensorDict> held = pair.server.recv(kPatience).value();
  std::optional<Loan> loan = pair.client.loan(bytes_schema(50'000), kPatience).value();
  const int status = run_in_child([&] {
    const auto received = pair.server.recv(0s);
    if (received || received.error().code != ErrorCode::forked) return 1;
    const auto sent = pair.client.send(numbered(1), 0s);
    if (sent || sent.error().code != ErrorCode::forked) return 2;
    held.reset();
    loan.reset();
    { Pipe gone = std::move(pair.client); }
    { Listener gone = std::move(pair.listener); }
    { Context gone = std::move(pair.client_context); }
    { Context gone = std::move(pair.server_context); }
    // A child may use Tendon afresh.
    auto fresh = Context::create({});
    return fresh ? 0 : 3;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_TRUE(is_patterned(*held, 1, 100'000));
  fill_pattern((*loan)["x"].mutable_bytes(), 2);
  ASSERT_TRUE(succeeds(pair.client.send(std::move(*loan), kPatience)));
  EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 2, 50'000));
  for (std::uint64_t n = 0; n < 50; ++n) {
    ASSERT_TRUE(succeeds(pair.client.send(patterned(n, 30'000), kPatience)));
    ASSERT_TRUE(is_patterned(pair.server.recv(kPatience).value(), n, 30'000));
  }
  auto [from, to] = another_pipe(pair);
  EXPECT_TRUE(succeeds(from.send(numbered(1), kPatience)));
}

// Threads of the parent hold its locks at the moment of a fork; in the child nobody releases them.
TEST_P(Fork, AChildOfABusyProcessDestroysItsCopiesToo) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
  PipePair pair = connect_pair({"", GetParam()});
  auto [busy, other_end] = another_pipe(pair);
  auto server = Server::serve(pair.server_context, "127.0.0.1:0", [](Pipe client) {
    while (auto got = client.recv(kPatience)) (void)client.send(*got, kPatience);
  });
  ASSERT_TRUE(succeeds(server));
  Pipe asking = Pipe::connect(pair.client_context, server->address(), kPatience).value();
  std::optional<Completion<Pipe>> accepting = pair.listener.accept_async();
  std::optional<Completion<TensorDict>> receiving = pair.server.recv_async();
  std::atomic<bool> over{false};
  std::thread traffic([&, &busy = busy, &other_end = other_end] {
    for (std::uint64_t n = 0; !over; ++n) {
      // Many sizes, so that segments are made and pages touched all the time.
      const std::uint64_t size_bytes = 1 + (n * 7919) % 3'000'000;
      EXPECT_TRUE(succeeds(busy.send(patterned(n, size_bytes), kPatience)));
      EXPECT_TRUE(succeeds(other_end.recv(kPatience)));
      EXPECT_TRUE(succeeds(asking.send(patterned(n, 1000), kPatience)));
      EXPECT_TRUE(succeeds(asking.recv(kPatience)));
      (void)busy.loan(bytes_schema(size_bytes), kPatience);
    }
  });
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    std::optional<Loan> loan = pair.client.loan(bytes_schema(50'000 + i * 5000), kPatience).value();
    const int status = run_in_child([&] {
      loan.reset();
      accepting.reset();
      receiving.reset();
      (void)pair.server_context.describe();
      { Server gone = std::move(*server); }
      { Pipe gone = std::move(pair.client); }
      { Pipe gone = std::move(busy); }
      { Listener gone = std::move(pair.listener); }
      { Context gone = std::move(pair.client_context); }
      { Context gone = std::move(pair.server_context); }
      return 0;
    });
    EXPECT_TRUE(exited_with(status, 0)) << "fork " << i << ": status " << status;
  }
  over = true;
  traffic.join();
}

// The actions of a child, or its mere existence, must not show on the pipes of its parent.
TEST_P(Fork, ChildrenOfABusyProcessDisturbNoneOfItsMessages) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
  PipePair pair = connect_pair({"", GetParam()});
  std::array<std::pair<Pipe, Pipe>, 2> ways{another_pipe(pair), another_pipe(pair)};
  std::atomic<bool> over{false};
  std::vector<std::thread> traffic;
  for (auto& [from, to] : ways) {
    traffic.emplace_back([&from = from, &over] {
      for (std::uint64_t n = 0; !over; ++n)
        ASSERT_TRUE(succeeds(from.send(patterned(n, size_of(n)), kPatience))) << n;
      ASSERT_TRUE(succeeds(from.finish_sending(kPatience)));
    });
    traffic.emplace_back([&to = to] {
      std::uint64_t n = 0;
      auto batch = to.recv(kPatience);
      for (; batch; ++n) {
        ASSERT_TRUE(is_patterned(*batch, n, size_of(n)));
        batch = to.recv(kPatience);
      }
      EXPECT_TRUE(fails_with(batch, ErrorCode::end_of_stream)) << "after message " << n;
    });
  }
  const std::string address = pair.listener.address();
  std::vector<pid_t> staying;
  for (int i = 0; i < 30 && !HasFailure(); ++i) {
    if (i % 3 == 0) {
      // This child lives until the end and does nothing.
      staying.push_back(fork());
      if (staying.back() == 0) {
        alarm(kLongestChildSeconds);
        for (;;) pause();
      }
    } else if (i % 3 == 1) {
      const int status = run_in_child([&] {
        const auto asked = pair.client.recv(0s);
        return !asked && asked.error().code == ErrorCode::forked ? 0 : 1;
      });
      EXPECT_TRUE(exited_with(status, 0)) << "fork " << i << ": status " << status;
    } else {
      const pid_t child = fork();
      if (child == 0) {
        alarm(kLongestChildSeconds);
        auto own = Context::create({.name = "child", .transport = GetParam()});
        if (!own) _exit(1);
        auto pipe = Pipe::connect(*own, address, kPatience);
        if (!pipe) _exit(2);
        if (!pipe->send(patterned(5, 100'000), kPatience)) _exit(3);
        if (!pipe->close(kPatience)) _exit(4);
        _exit(0);
      }
      auto pipe = pair.listener.accept(kPatience);
      ASSERT_TRUE(succeeds(pipe));
      EXPECT_TRUE(is_patterned(pipe->recv(kPatience).value(), 5, 100'000));
      EXPECT_TRUE(exited_with(wait_for(child), 0)) << "fork " << i;
    }
  }
  over = true;
  for (std::thread& each : traffic) each.join();
  // The end of the parent's Context shows, although children live.
  ASSERT_TRUE(succeeds(pair.client_context.close(kPatience)));
  EXPECT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
  for (const pid_t child : staying) {
    EXPECT_EQ(kill(child, SIGKILL), 0);
    EXPECT_TRUE(killed_by(wait_for(child), SIGKILL)) << "it ended before";
  }
}

TEST_P(Fork, AChildOfAMemberOfABusyGroupDestroysItsCopiesToo) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
  std::array<std::optional<Context>, 2> contexts;
  std::array<std::optional<Group>, 2> groups;
  std::array<std::thread, 2> members;
  const std::string address = fresh_group_address();
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    members[rank] = std::thread([&, rank] {
      contexts[rank] = Context::create({.transport = GetParam()}).value();
      groups[rank] =
          Group::join(*contexts[rank], Rendezvous::at(address, GroupRank{rank}, 2), kPatience)
              .value();
    });
  }
  for (std::thread& member : members) member.join();
  std::atomic<bool> over{false};
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    members[rank] = std::thread([&, rank] {
      Tensor values = Tensor::zeros(DType::f32, Shape({300'000})).value();
      Tensor end = Tensor::of<float>({1}, {0});
      while (end.item<float>({0}) == 0) {  // both know it after the same operation
        end = Tensor::of<float>({1}, {over ? 1.0f : 0.0f});
        EXPECT_TRUE(
            succeeds(groups[rank]->all_reduce_async(values, ReduceOp::sum).wait(kPatience)));
        ASSERT_TRUE(succeeds(groups[rank]->all_reduce(end, ReduceOp::max, kPatience)));
      }
    });
  }
  for (int i = 0; i < 100 && !HasFailure(); ++i) {
    const int status = run_in_child([&] {
      const auto met = groups[0]->barrier(0s);
      if (met || met.error().code != ErrorCode::forked) return 1;
      for (auto& group : groups) group.reset();
      for (auto& context : contexts) context.reset();
      return 0;
    });
    EXPECT_TRUE(exited_with(status, 0)) << "fork " << i << ": status " << status;
  }
  over = true;
  for (std::thread& member : members) member.join();
}

// Every lock that a whole process shares is free in the child. Threads take them all the time, so
// some of these many forks happen while they are held.
TEST_P(Fork, AThousandChildrenOfABusyProcessConnectAndExchange) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer's malloc keeps its locks over a fork";
  constexpr int kChildren = 1000;
  constexpr int kAtOnce = 4;
  PipePair pair = connect_pair({"", GetParam()});
  auto server = Server::serve(pair.server_context, "127.0.0.1:0", [](Pipe client) {
    while (auto got = client.recv(kPatience)) (void)client.send(*got, kPatience);
  });
  ASSERT_TRUE(succeeds(server));
  const std::string address = server->address();
  set_log_callback(LogLevel::warn, [](const LogLine&) {});
  std::atomic<bool> over{false};
  const auto repeat = [&over](auto work) {
    return std::thread([&over, work] {
      for (std::uint64_t n = 0; !over && !HasFailure(); ++n) work(n);
    });
  };
  std::array<std::thread, 4> busy{
      repeat([&](std::uint64_t n) {
        EXPECT_TRUE(succeeds(pair.client.send(patterned(n, size_of(n)), kPatience)));
        EXPECT_TRUE(succeeds(pair.server.recv(kPatience)));
      }),
      repeat([](std::uint64_t) { log(LogLevel::warn, "test.fork", "a line"); }),
      repeat([&](std::uint64_t) {
        Context context = Context::create({.transport = GetParam()}).value();
        Node node =
            Node::join(context, {.name = "busy", .peers = std::vector<std::string>{}}, kPatience)
                .value();
        EXPECT_TRUE(succeeds(Publisher::declare(node, "count")));
      }),
      repeat([&](std::uint64_t) {
        Context context = Context::create({.transport = GetParam()}).value();
        EXPECT_TRUE(succeeds(
            Pipe::connect(context, "localhost" + address.substr(address.rfind(':')), kPatience)));
      })};
  const auto exchange = [&] {
    auto own = Context::create({.name = "child", .transport = GetParam()});
    if (!own) return 1;
    auto pipe = Pipe::connect(*own, "localhost" + address.substr(address.rfind(':')), kPatience);
    if (!pipe) return 2;
    if (!pipe->send(patterned(5, 20'000), kPatience)) return 3;
    auto back = pipe->recv(kPatience);
    if (!back || !is_patterned(*back, 5, 20'000)) return 4;
    auto node = Node::join(*own, {.name = "child", .peers = std::vector<std::string>{}}, kPatience);
    if (!node) return 5;
    log(LogLevel::warn, "test.fork", "a line of the child");
    return pipe->close(kPatience) ? 0 : 6;
  };
  for (int i = 0; i < kChildren && !HasFailure(); i += kAtOnce) {
    std::array<pid_t, kAtOnce> children{};
    for (pid_t& child : children) {
      child = fork();
      if (child != 0) continue;
      alarm(kLongestChildSeconds);
      _exit(exchange());
    }
    for (const pid_t child : children) {
      const int status = wait_for(child);
      EXPECT_TRUE(exited_with(status, 0)) << "fork " << i << ": status " << status;
    }
  }
  over = true;
  for (std::thread& thread : busy) thread.join();
  set_log_callback(LogLevel::warn, {});
}

TEST_P(Fork, AChildThatUsesTendonAfreshTalksToItsParent) {
  Context context = Context::create({.name = "parent", .transport = GetParam()}).value();
  Listener listener = Listener::bind(context, "127.0.0.1:0").value();
  const std::string address = listener.address();
  const pid_t child = fork();
  if (child == 0) {
    auto own = Context::create({.name = "child", .transport = GetParam()});
    if (!own) _exit(1);
    auto pipe = Pipe::connect(*own, address, kPatience);
    if (!pipe) _exit(2);
    if (!pipe->send(patterned(5, 100'000), kPatience)) _exit(3);
    if (!pipe->close(kPatience)) _exit(4);
    _exit(0);
  }
  Pipe pipe = listener.accept(kPatience).value();
  EXPECT_EQ(pipe.peer().name, "child");
  EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 5, 100'000));
  EXPECT_TRUE(exited_with(wait_for(child), 0));
}

}  // namespace
}  // namespace tendon::test
