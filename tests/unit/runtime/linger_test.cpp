// SPDX-License-Identifier: Apache-2.0
// docs/fork.md, "Exit": messages sent and not yet delivered when a pipe or its Context ends.
#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

class Linger : public PipeTest {};
TENDON_ON_BOTH_PATHS(Linger);

TEST_P(Linger, APipeAndContextDroppedAtOnceStillDeliver) {
  Context server = Context::create({.transport = way().transport}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  {
    Context client = Context::create({.transport = way().transport, .linger = kPatience}).value();
    Pipe pipe = Pipe::connect(client, listener.address(), kPatience).value();
    for (std::uint64_t n = 0; n < 8; ++n)
      ASSERT_TRUE(succeeds(pipe.send(patterned(n, 1 << 20), kPatience)));
  }
  Pipe accepted = listener.accept(kPatience).value();
  for (std::uint64_t n = 0; n < 8; ++n)
    ASSERT_TRUE(is_patterned(accepted.recv(kPatience).value(), n, 1 << 20)) << n;
  EXPECT_TRUE(fails_with(accepted.recv(kPatience), ErrorCode::end_of_stream));
}

TEST_P(Linger, AsyncSendsWhoseCompletionsAreDroppedAreSentToo) {
  Context server = Context::create({.transport = way().transport}).value();
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  {
    Context client = Context::create({.transport = way().transport, .linger = kPatience}).value();
    Pipe pipe = Pipe::connect(client, listener.address(), kPatience).value();
    for (std::uint64_t n = 0; n < 8; ++n) (void)pipe.send_async(patterned(n, 1 << 20));
  }
  Pipe accepted = listener.accept(kPatience).value();
  for (std::uint64_t n = 0; n < 8; ++n)
    ASSERT_TRUE(is_patterned(accepted.recv(kPatience).value(), n, 1 << 20)) << n;
  EXPECT_TRUE(fails_with(accepted.recv(kPatience), ErrorCode::end_of_stream));
}

TEST_P(Linger, WhatCannotBeSentIsAnUnsentEventAndATimeout) {
  // The peer makes progress only in its calls, and it makes none, so its window stays full.
  PipePair pair = connect_pair({"", way().transport, Progress::manual});
  std::mutex mutex;
  std::vector<MemberEvent> events;
  pair.server_context.on_member([&](const MemberEvent& event) {
    std::lock_guard lock(mutex);
    events.push_back(event);
  });
  std::vector<Completion<void>> sends;
  for (std::uint64_t n = 0; n < 600; ++n)
    sends.push_back(pair.server.send_async(patterned(n, 200'000)));
  sends.clear();
  EXPECT_TRUE(fails_with(pair.server_context.close(100ms), ErrorCode::timeout, "client"));
  bool unsent = false;
  std::lock_guard lock(mutex);
  for (const MemberEvent& event : events) {
    if (event.kind != MemberEventKind::unsent) continue;
    unsent = true;
    EXPECT_NE(event.member.find("client"), std::string::npos) << event;
    EXPECT_NE(event.reason.find("begun to leave: "), std::string::npos) << event;
    EXPECT_EQ(event.reason.find("to leave: 0"), std::string::npos) << event;
  }
  EXPECT_TRUE(unsent);
}

TEST_P(Linger, AClosedContextHasNothingLeftToSend) {
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 300'000), kPatience)));
  EXPECT_TRUE(succeeds(pair.client_context.close(kPatience)));
  EXPECT_TRUE(is_patterned(pair.server.recv(kPatience).value(), 1, 300'000));
}

}  // namespace
}  // namespace tendon::test
