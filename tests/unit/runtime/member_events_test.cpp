// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

/// Collects the events of one Context.
class Events {
 public:
  explicit Events(Context& context) {
    context.on_member([this](const MemberEvent& event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
      changed_.notify_all();
    });
  }
  testing::AssertionResult wait_for(MemberEventKind kind, std::string_view member) {
    std::unique_lock lock(mutex_);
    const auto found = [&] {
      for (const MemberEvent& event : events_)
        if (event.kind == kind && event.member.find(member) != std::string::npos) return true;
      return false;
    };
    if (changed_.wait_for(lock, kPatience, found)) return testing::AssertionSuccess();
    auto failure = testing::AssertionFailure();
    failure << "no " << to_string(kind) << " of " << member << " but:";
    for (const MemberEvent& event : events_) failure << "\n" << event;
    return failure;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<MemberEvent> events_;
};

class MemberEvents : public PipeTest {};
TENDON_ON_BOTH_PATHS(MemberEvents);

TEST_P(MemberEvents, JoinedAndLeftAtBothEnds) {
  std::optional<Context> client =
      Context::create({.name = "alpha", .transport = way().transport}).value();
  Context server = Context::create({.name = "omega", .transport = way().transport}).value();
  Events seen_by_client(*client);
  Events seen_by_server(server);
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  Pipe pipe = Pipe::connect(*client, listener.address(), kPatience).value();
  EXPECT_TRUE(seen_by_client.wait_for(MemberEventKind::joined, "omega"));
  EXPECT_TRUE(seen_by_server.wait_for(MemberEventKind::joined, "alpha"));
  ASSERT_EQ(server.members().size(), 1u);
  EXPECT_EQ(server.members()[0].name, "alpha");
  EXPECT_EQ(server.members()[0].context, client->id());
  client.reset();
  EXPECT_TRUE(seen_by_server.wait_for(MemberEventKind::left, "alpha"));
  EXPECT_TRUE(server.members().empty());
}

TEST_P(MemberEvents, ACallbackMayUseTheContext) {
  Context client = Context::create({.transport = way().transport}).value();
  Context server = Context::create({.transport = way().transport}).value();
  std::atomic<bool> called{false};
  server.on_member([&](const MemberEvent&) {
    (void)server.describe();
    (void)server.members();
    (void)Listener::bind(server, "127.0.0.1:0");
    called = true;
  });
  Listener listener = Listener::bind(server, "127.0.0.1:0").value();
  Pipe pipe = Pipe::connect(client, listener.address(), kPatience).value();
  EXPECT_TRUE(eventually([&] { return called.load(); }));
}

}  // namespace
}  // namespace tendon::test
