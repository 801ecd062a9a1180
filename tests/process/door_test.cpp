// SPDX-License-Identifier: Apache-2.0
// Many connections from one address to a listener. The hosts are network namespaces: loopback is
// exempt from the rule.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <tendon/pipe/listener.hpp>
#include <tendon/pipe/pipe.hpp>
#include <tendon/session/limits.hpp>
#include <vector>

#include "process/network.hpp"
#include "session/resolve.hpp"
#include "support/expect.hpp"
#include "support/raw_client.hpp"

namespace tendon::test {
namespace {

class DoorOverNetworks : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto reason = Network::why_not()) GTEST_SKIP() << *reason;
    network_.emplace(3);
    network_->inside(0, [&] {
      server_ = Context::create({.name = "server"}).value();
      listener_ =
          Listener::bind(*server_, Network::address(0) + ":0", {.security = {Profile::plaintext}})
              .value();
    });
  }
  [[nodiscard]] detail::OwnedFd connect_from_here() {
    const auto address = Address::parse(listener_->address()).value();
    const auto there = detail::resolve(address, kPatience, detail::ResolveFor::connect).value();
    detail::OwnedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), there[0].get(), there[0].length), 0);
    return fd;
  }
  /// Opens connections of `host` that have sent a hello and received the answer, and then stop.
  void stall(std::uint32_t host, std::size_t count) {
    network_->inside(host, [&] {
      for (std::size_t i = 0; i < count; ++i) {
        stalled_.push_back(std::make_unique<RawWire>(connect_from_here()));
        stalled_.back()->say(claims());
        EXPECT_TRUE(stalled_.back()->hear()) << i;
      }
    });
  }
  void an_honest_peer_comes_through(std::uint32_t host) {
    network_->inside(host, [&] {
      Context client = Context::create({.name = "client"}).value();
      auto from = Pipe::connect(client, listener_->address(), kPatience,
                                {.security = {Profile::plaintext}});
      ASSERT_TRUE(succeeds(from));
      EXPECT_TRUE(succeeds(listener_->accept(kPatience)));
    });
  }
  std::optional<Network> network_;
  std::optional<Context> server_;
  std::optional<Listener> listener_;
  std::vector<std::unique_ptr<RawWire>> stalled_;
};

TEST_F(DoorOverNetworks, AnAddressThatStallsShutsOutNoOther) {
  stall(1, kConnectionsPerSource);
  network_->inside(1, [&] {
    RawWire turned_away(connect_from_here());
    turned_away.say(claims());
    EXPECT_FALSE(turned_away.hear()) << "the seventeenth";
  });
  an_honest_peer_comes_through(2);
  an_honest_peer_comes_through(0);
  an_honest_peer_comes_through(1);
}

TEST_F(DoorOverNetworks, TheOwnHostIsExempt) { stall(0, kConnectionsPerSource + 4); }

}  // namespace
}  // namespace tendon::test
