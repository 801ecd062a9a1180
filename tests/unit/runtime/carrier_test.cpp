// SPDX-License-Identifier: Apache-2.0
// Links over what another layer carries. Both ends are on one host, and must not find it out: a
// socketpair between says nothing of the peer.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include "runtime/acceptor.hpp"
#include "runtime/connect.hpp"
#include "support/expect.hpp"
#include "transport/stream/socket_stream.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;

class AnyPeer final : public OpenHandler {
 public:
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link>, const Descriptor&,
                                               Bytes) override {
    return Error{ErrorCode::unreachable, "test", "no pipes here"};
  }
  void on_context_closed() override {}
};

class Carried : public testing::Test {
 protected:
  // How the two are told of their streams.
  [[nodiscard]] Result<Connected> connect_as(Profile profile, PathKind here, PathKind there) {
    acceptor_ = Acceptor::without_socket(ContextCore::of(server_), profile, handler_);
    const Carrier carrier{
        .name = "the other end",
        .open = [&](Lane, Deadline) -> Result<std::unique_ptr<ByteStream>> {
          std::array<int, 2> ends{};
          EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()),
                    0);
          ++opened_;
          acceptor_->admit(
              std::make_unique<SocketStream>(OwnedFd(ends[1]), StreamPeer{.kind = there}),
              std::nullopt);
          return std::unique_ptr<ByteStream>(std::make_unique<SocketStream>(
              OwnedFd(ends[0]), StreamPeer{.kind = here, .why = "no wire"}));
        }};
    return connect(*ContextCore::of(client_), carrier, profile, kPatience);
  }

  int opened_ = 0;
  const std::shared_ptr<AnyPeer> handler_ = std::make_shared<AnyPeer>();
  Context client_ = Context::create({.name = "client"}).value();
  Context server_ = Context::create({.name = "server"}).value();
  std::shared_ptr<Acceptor> acceptor_;
};

TEST_F(Carried, ALinkIsRoutedAndHasTwoConnections) {
  const auto connected = connect_as(Profile::plaintext, PathKind::routed, PathKind::routed);
  ASSERT_TRUE(succeeds(connected));
  EXPECT_EQ(connected->link->path().to_string(), "routed: no wire");
  EXPECT_EQ(opened_, 2);
  // Either side uses it, and no second one is made.
  const auto again = connect_as(Profile::plaintext, PathKind::routed, PathKind::routed);
  ASSERT_TRUE(succeeds(again));
  EXPECT_EQ(again->link, connected->link);
  EXPECT_TRUE(eventually([&] {
    return ContextCore::of(server_)->links().usable(client_.id(), Profile::plaintext,
                                                    ReachBy::any) != nullptr;
  }));
}

TEST_F(Carried, NothingIsProvedByASocketpair) {
  EXPECT_TRUE(fails_with(connect_as(Profile::local, PathKind::routed, PathKind::routed),
                         ErrorCode::permission_denied, "local"));
}

TEST_F(Carried, ASideThatCallsItAnotherPathIsRefused) {
  EXPECT_TRUE(fails_with(connect_as(Profile::plaintext, PathKind::tcp, PathKind::routed),
                         ErrorCode::protocol_violation, "routed"));
}

}  // namespace
}  // namespace tendon::test
