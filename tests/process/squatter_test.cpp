// SPDX-License-Identifier: Apache-2.0
// A stranger uses the context id of a node, which every hello and announcement contains, towards
// another node; then the real node arrives.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <tendon/fabric/node.hpp>

#include "process/peer.hpp"
#include "session/features.hpp"
#include "support/batches.hpp"
#include "support/expect.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_client.hpp"

namespace tendon::test {
namespace {

class Squatter : public ProcessTest {
 protected:
  /// A runtime directory of its own proves no common host.
  [[nodiscard]] Peer::Options honest() const {
    const std::string elsewhere = runtime_folder() + "/elsewhere";
    EXPECT_EQ(mkdir(elsewhere.c_str(), 0700), 0);
    return {
        {"honest", "tcp", std::to_string(kLongLease.count()), "plaintext", "listen=127.0.0.1:0"},
        {{"TENDON_RUNTIME_DIR", elsewhere}},
        "node_main"};
  }
  /// Opens a link to `address` under the id of another, which stays and claims to serve discovery.
  [[nodiscard]] static std::unique_ptr<RawClient> squat(const std::string& address,
                                                        const ContextId& id) {
    detail::HelloMessage claim = claims();
    claim.context_id = id;
    claim.name = "honest";
    claim.features = detail::Features::of_minor(1).bits();
    auto link = std::make_unique<RawClient>(address, claim);
    EXPECT_TRUE(is_ready(link->choose()));
    link->post({.kind = detail::MessageKind::open,
                .flags = detail::Descriptor::kInline,
                .pipe = 1,
                .schema = static_cast<std::uint32_t>(detail::Purpose::discovery)},
               {});
    return link;
  }

  Context context_ = Context::create({.name = "victim", .lease = kLongLease}).value();
  Node node_ = Node::join(context_,
                          {.domain = "brain",
                           .name = "victim",
                           .peers = std::vector<std::string>{},
                           .listen = "127.0.0.1:0",
                           .security = {Profile::plaintext}},
                          kPatience)
                   .value();
};

TEST_F(Squatter, KeepsNeitherSideFromTheOther) {
  Publisher publisher = Publisher::declare(node_, "victim/x", {.qos = {keep_last(4)}}).value();
  Subscriber subscriber = Subscriber::declare(node_, "honest/x").value();
  Peer peer(honest());
  ASSERT_TRUE(is_ok(peer.ask("subscribe victim/x s")));
  ASSERT_TRUE(is_ok(peer.ask("publisher honest/x 4")));
  const std::string address = value_of(peer.ask("address"));
  const ContextId id = RawClient(address, claims()).answer.value().context_id;
  const auto squatter = squat(node_.address(), id);
  ASSERT_TRUE(is_ok(peer.ask("peer " + node_.address())));
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience))) << "it was refused";
  ASSERT_TRUE(succeeds(publisher.publish(patterned(1, 64))));
  EXPECT_EQ(peer.ask("recv s 64"), "ok 1");
  // The victim's own channels lead to the address that the node announces, not to the squatter.
  ASSERT_TRUE(is_ok(peer.ask("wait 1")));
  ASSERT_TRUE(is_ok(peer.ask("publish 64 1")));
  const auto sample = subscriber.recv(kPatience);
  ASSERT_TRUE(succeeds(sample));
  EXPECT_EQ(sample->sequence, 1u);
}

}  // namespace
}  // namespace tendon::test
