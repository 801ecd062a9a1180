// SPDX-License-Identifier: Apache-2.0
// Options are also read by the names that they had one minor version ago.
#include <gtest/gtest.h>

#include "unit/fabric/nodes.hpp"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace tendon::test {
namespace {

TEST(FormerNames, OfTheSecurityOfConnections) {
  Context context = Context::create({.name = "former"}).value();
  EXPECT_TRUE(succeeds(Listener::bind(context, "0.0.0.0:0", {.profile = Profile::plaintext})));
  const std::vector<std::string> nobody;
  Node node = Node::join(context, {.name = "a", .peers = nobody}, kPatience).value();
  EXPECT_TRUE(fails_with(
      Node::join(context, {.name = "b", .peers = nobody, .profile = Profile::plaintext}, kPatience),
      ErrorCode::invalid_argument, "profile"));
}

TEST(FormerNames, OfWhatATopicPromises) {
  Context context = Context::create({.name = "former"}).value();
  Node node =
      Node::join(context, {.name = "a", .peers = std::vector<std::string>()}, kPatience).value();
  EXPECT_TRUE(fails_with(Publisher::declare(node, "a", {.history = keep_last(0)}),
                         ErrorCode::invalid_argument, "history"));
  const Publisher publisher =
      Publisher::declare(
          node, "a",
          {.history = keep_last(7), .overflow = Overflow::block, .priority = Priority::control})
          .value();
  const Qos promised{keep_last(7), Overflow::block, Priority::control};
  ASSERT_TRUE(eventually([&] { return node.publishers().size() == 1; }));
  EXPECT_EQ(node.publishers().front().qos, promised);
}

TEST(FormerNames, OfWhatIsSaidOfPlainPeers) {
  Context context = Context::create({.name = "former"}).value();
  const std::vector<std::string> nobody;
  const std::vector<std::string> keys{"sensors/**"};
  EXPECT_TRUE(
      fails_with(Node::join(context, {.name = "b", .peers = nobody, .plain = keys}, kPatience),
                 ErrorCode::not_supported, "plain Zenoh peers"));
  Node node = Node::join(context, {.name = "a", .peers = nobody}, kPatience).value();
  EXPECT_TRUE(fails_with(Publisher::declare(node, "a", {.plain = PlainPeers::bare}),
                         ErrorCode::not_supported));
  EXPECT_TRUE(fails_with(Subscriber::declare(node, "a", {.plain = true}), ErrorCode::not_supported,
                         "plain Zenoh peers"));
}

}  // namespace
}  // namespace tendon::test

#pragma GCC diagnostic pop
