// SPDX-License-Identifier: Apache-2.0
// The end that lives on, in the process of the test.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>
#include <vector>

#include "process/peer.hpp"
#include "runtime/engine.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"

namespace tendon::test {

/// A listening Context that remembers its events.
class Survivor {
 public:
  explicit Survivor(Transport transport, ContextOptions options = {}) {
    options.name = "survivor";
    options.transport = transport;
    context_ = Context::create(options).value();
    context_->on_member([this](const MemberEvent& event) {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
      changed_.notify_all();
    });
    listener_ = Listener::bind(*context_, "127.0.0.1:0").value();
  }

  Context& context() { return *context_; }
  Listener& listener() { return *listener_; }
  [[nodiscard]] std::string address() const { return listener_->address(); }

  /// Lets `peer` connect and takes its pipe.
  Pipe meet(Peer& peer) {
    EXPECT_TRUE(is_ok(peer.ask("connect " + address())));
    return listener_->accept(kPatience).value();
  }

  /// Waits until an event of this kind about `member` has come.
  testing::AssertionResult sees(MemberEventKind kind, std::string_view member) {
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
  [[nodiscard]] std::size_t count(MemberEventKind kind) {
    std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const MemberEvent& event : events_) count += event.kind == kind ? 1 : 0;
    return count;
  }

  /// The link to the only peer; also after its end.
  [[nodiscard]] std::shared_ptr<detail::Link> link() {
    const auto links = detail::Engine::of(*context_)->links();
    EXPECT_EQ(links.size(), 1u);
    return links.empty() ? nullptr : links.front();
  }

  /// A new peer can connect and be served: whatever happened to another one.
  void expect_alive(Transport transport) {
    Peer fresh(
        {{"--name", "fresh", "--transport", transport == Transport::shm ? "shm" : "tcp"}, {}});
    Pipe pipe = meet(fresh);
    ASSERT_TRUE(succeeds(pipe.send(patterned(77, 50'000), kPatience)));
    EXPECT_TRUE(is_ok(fresh.ask("recv 77 50000")));
    EXPECT_TRUE(is_ok(fresh.ask("send 78 50000")));
    EXPECT_TRUE(is_patterned(pipe.recv(kPatience).value(), 78, 50'000));
    EXPECT_TRUE(is_ok(fresh.ask("close")));
    fresh.tell("exit");
    fresh.wait();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<MemberEvent> events_;
  std::optional<Context> context_;
  std::optional<Listener> listener_;
};

inline std::string name_of(Transport transport) {
  return transport == Transport::shm ? "shm" : "tcp";
}

/// A process test on one path.
class PathTest : public ProcessTest, public testing::WithParamInterface<Transport> {
 protected:
  [[nodiscard]] static bool is_shm() { return GetParam() == Transport::shm; }
  [[nodiscard]] static std::string path_name() { return name_of(GetParam()); }
  [[nodiscard]] static Peer::Options victim(std::map<std::string, std::string> environment = {},
                                            std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"--name", "victim", "--transport", path_name()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return {std::move(arguments), std::move(environment)};
  }
};
inline std::string path_name_of(const testing::TestParamInfo<Transport>& info) {
  return name_of(info.param);
}

}  // namespace tendon::test

#define TENDON_ON_BOTH_TRANSPORTS(suite)                                                        \
  INSTANTIATE_TEST_SUITE_P(Paths, suite,                                                        \
                           testing::Values(::tendon::Transport::shm, ::tendon::Transport::tcp), \
                           ::tendon::test::path_name_of)
