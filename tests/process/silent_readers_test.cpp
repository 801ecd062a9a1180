// SPDX-License-Identifier: Apache-2.0
// A peer that opens subscriptions and reads nothing, beside honest readers of the same publisher in
// another process.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <tendon/fabric/node.hpp>
#include <vector>

#include "process/peer.hpp"
#include "support/batches.hpp"
#include "support/silent_reader.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kSize = 1'000'000;  // in a slot of 1 MiB: the pool has 16

class SilentReaders : public ProcessTest {
 protected:
  [[nodiscard]] Context make(const std::string& name) const {
    return Context::create({.name = name, .transport = Transport::tcp, .lease = kLongLease})
        .value();
  }
  [[nodiscard]] static Node join(Context& context, const std::string& name,
                                 const std::string& address) {
    return Node::join(context, {.domain = "brain", .name = name, .peers = {{address}}}, kPatience)
        .value();
  }
  static void publish(Peer& publisher, int count) {
    ASSERT_TRUE(
        is_ok(publisher.ask("publish " + std::to_string(kSize) + ' ' + std::to_string(count))));
  }
};

// One peer opens 80 subscriptions. Each of them would keep the sample that was the newest when the
// subscription started.
TEST_F(SilentReaders, OfOneLinkLeaveTheHonestOnesTheirs) {
  Peer publisher({{"p", "tcp", std::to_string(kLongLease.count()), "listen=127.0.0.1:0",
                   "publish_bytes=" + std::to_string(16 << 20)},
                  {},
                  "node_main"});
  ASSERT_TRUE(is_ok(publisher.ask("publisher frames 2")));
  const std::string address = value_of(publisher.ask("address"));
  Context context = make("honest");
  Node node = join(context, "honest", address);
  Subscriber honest = Subscriber::declare(node, "frames").value();
  ASSERT_TRUE(is_ok(publisher.ask("wait 1")));
  std::uint64_t sequence = 0;
  std::uint32_t entity = 0;
  const auto publish_and_receive = [&](Subscriber& reader) {
    ASSERT_NO_FATAL_FAILURE(publish(publisher, 1));
    ++sequence;
    const Sample sample = reader.recv(kPatience).value();
    ASSERT_EQ(sample.sequence, sequence);
    ASSERT_TRUE(sample.gaps.empty());
    ASSERT_TRUE(is_patterned(*sample.tensors, sequence, kSize));
    entity = sample.entity;
  };
  ASSERT_NO_FATAL_FAILURE(publish_and_receive(honest));
  const auto links = detail::ContextCore::of(context)->links().all();
  ASSERT_EQ(links->size(), 1u);
  SilentReader silent(links->front()->peer().context, address);
  for (int n = 1; n <= 80; ++n) {
    silent.subscribe(entity);
    ASSERT_TRUE(
        eventually([&] { return publisher.ask("subscribers") == "ok " + std::to_string(n + 1); }));
    ASSERT_NO_FATAL_FAILURE(publish_and_receive(honest));
    if (n == 1) silent.read_one();
  }
  // A new reader gets the history, and all samples after it.
  Context other_context = make("other");
  Node other_node = join(other_context, "other", address);
  Subscriber other = Subscriber::declare(other_node, "frames").value();
  for (std::uint64_t n = sequence - 1; n <= sequence; ++n)
    EXPECT_EQ(other.recv(kPatience).value().sequence, n);
  for (int n = 0; n < 20; ++n) {
    ASSERT_NO_FATAL_FAILURE(publish_and_receive(honest));
    const Sample sample = other.recv(kPatience).value();
    EXPECT_EQ(sample.sequence, sequence);
    EXPECT_TRUE(sample.gaps.empty());
  }
}

}  // namespace
}  // namespace tendon::test
