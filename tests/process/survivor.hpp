// SPDX-License-Identifier: Apache-2.0
// The end that survives, in the process of the test.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/runtime/context.hpp>

#include "process/peer.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/member_events.hpp"

namespace tendon::test {

/// A listening Context that remembers its events.
class Survivor {
 public:
  explicit Survivor(Transport transport, ContextOptions options = {}) {
    options.name = "survivor";
    options.transport = transport;
    context_ = Context::create(options).value();
    events_.watch(*context_);
    listener_ = Listener::bind(*context_, "127.0.0.1:0").value();
  }

  Context& context() { return *context_; }
  Listener& listener() { return *listener_; }
  [[nodiscard]] std::string address() const { return listener_->address(); }

  /// Lets `peer` connect and accepts its pipe.
  Pipe meet(Peer& peer) {
    EXPECT_TRUE(is_ok(peer.ask("connect " + address())));
    return listener_->accept(kPatience).value();
  }

  /// Waits until an event of this kind about `member` has arrived.
  testing::AssertionResult sees(MemberEventKind kind, std::string_view member) {
    return events_.wait_for(kind, member);
  }
  [[nodiscard]] std::size_t count(MemberEventKind kind) { return events_.count(kind); }

  /// The link to the only peer; also after its end.
  [[nodiscard]] std::shared_ptr<detail::Link> link() {
    const auto links = detail::ContextCore::of(*context_)->links().all();
    EXPECT_EQ(links->size(), 1u);
    return links->empty() ? nullptr : links->front();
  }

  /// Expects that a new peer can connect and is served, whatever happened to another one.
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
  MemberEventLog events_;  // before the Context: it outlives it
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
