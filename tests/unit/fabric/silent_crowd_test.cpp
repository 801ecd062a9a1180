// SPDX-License-Identifier: Apache-2.0
// Strangers announce hundreds of nodes that do not exist: a newcomer is still found.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "fabric/keys/announcement.hpp"
#include "fabric/nodes/context_fabric.hpp"
#include "session/nonce128.hpp"
#include "support/batches.hpp"
#include "support/live_zenoh.hpp"
#include "support/raw_socket.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using detail::ContextFabric;

class SilentCrowd : public testing::Test {
 protected:
  /// Starts a node on a host of its own, which others reach by tcp.
  [[nodiscard]] Program start(const std::string& name, std::uint8_t host) {
    Context context = Context::create({.name = name, .lease = kLongLease}).value();
    NodeOptions node{.domain = "brain",
                     .name = name,
                     .routers = {"the double"},
                     .listen = "127.0.0.1:0",
                     .routed = false,
                     .security = {Profile::plaintext}};
    const auto fabric = ContextFabric::of(ContextCore::of(context), Profile::plaintext).value();
    EXPECT_TRUE(succeeds(fabric->adopt(
        node.routers, {.server = nullptr, .client = network_.open(host), .state = nullptr})));
    Node joined = Node::join(context, std::move(node), kPatience).value();
    return {std::move(context), std::move(joined)};
  }
  /// Announces a node that neither takes nor refuses connections, with one publisher.
  void announce_silent_one() {
    const ContextId context{detail::random_nonce().value()};
    const auto node =
        to_key(detail::NodeAnnouncement{.domain = "brain",
                                        .name = "silent",
                                        .context = context,
                                        .start = 1,
                                        .unix_on = {},
                                        .addresses = {Address::parse(silent_.address()).value()}});
    const auto publisher =
        to_key(detail::EntityAnnouncement{.domain = "brain",
                                          .kind = detail::EntityKind::publisher,
                                          .context = context,
                                          .entity = 1,
                                          .schema = {},
                                          .qos = {},
                                          .topic = KeyExpression::parse("count").value()});
    for (const auto& key : {node, publisher})
      tokens_.push_back(stranger_->token(key.value()).value());
  }

  const FullListener silent_;
  LiveZenoh network_;
  std::unique_ptr<detail::ZenohPort> stranger_ = network_.open(99);
  std::vector<detail::ZenohPort::Handle> tokens_;
};

TEST_F(SilentCrowd, KeepsNoNewcomerWaiting) {
  Program motor = start("motor", 1);
  Subscriber subscriber = Subscriber::declare(motor.node, "count").value();
  // At one second each on sixteen threads they would take half a minute, repeatedly.
  constexpr int kCrowd = 500;
  for (int n = 0; n < kCrowd; ++n) announce_silent_one();
  ASSERT_TRUE(eventually([&] { return motor.node.publishers().size() >= kCrowd; }));
  std::mutex mutex;
  std::condition_variable ended;
  bool is_over = false;
  std::thread more([&] {
    std::unique_lock lock(mutex);
    // A hundred more a second.
    while (!ended.wait_for(lock, 10ms, [&] { return is_over; })) announce_silent_one();
  });
  Program vision = start("vision", 2);
  Publisher publisher = Publisher::declare(vision.node, "count").value();
  EXPECT_TRUE(succeeds(publisher.wait_for_subscribers(1, 10s)));
  {
    const std::lock_guard lock(mutex);
    is_over = true;
  }
  ended.notify_all();
  more.join();
}

}  // namespace
}  // namespace tendon::test
