// SPDX-License-Identifier: Apache-2.0
// Links over streams of another layer. Both ends are on one host, but must not find that out: the
// socketpair between them reveals nothing about the peer.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>

#include "runtime/acceptor.hpp"
#include "runtime/connect.hpp"
#include "support/expect.hpp"
#include "support/secure/credentials.hpp"
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
  // `here` and `there` are the kinds that the two ends see of their streams.
  [[nodiscard]] Result<Connected> connect_as(Profile profile, PathKind here, PathKind there) {
    return connect_as({profile}, {profile}, server_.id(), here, there);
  }
  [[nodiscard]] Result<Connected> connect_as(const Security& of_client, const Security& of_server,
                                             const ContextId& expected,
                                             PathKind here = PathKind::routed,
                                             PathKind there = PathKind::routed) {
    acceptor_ = Acceptor::without_socket(ContextCore::of(server_), of_server, handler_).value();
    const Carrier carrier{
        .name = "the other end",
        .context = expected,
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
    return connect(*ContextCore::of(client_), carrier, of_client, kPatience);
  }
  /// The proofs at this end of the link to the other one; none while there is no link.
  [[nodiscard]] static Proofs proofs_at(const Context& end, const Context& other) {
    LinkTable& links = ContextCore::of(end)->links();
    for (const auto& link : *links.all()) {
      const auto entry = links.entry_of(*link);
      if (entry && link->peer().context == other.id()) return entry->proofs;
    }
    return {};
  }
  [[nodiscard]] static Security with_key(char fill) {
    return {.profile = Profile::secure, .credentials = fleet_key(fill)};
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
  // Either side uses it, and no second link is made.
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

TEST_F(Carried, AnotherContextThanTheOneAskedForGetsNoLink) {
  const Context other = Context::create({}).value();
  EXPECT_TRUE(fails_with(connect_as({Profile::plaintext}, {Profile::plaintext}, other.id()),
                         ErrorCode::unreachable, server_.id().to_string()));
  EXPECT_TRUE(ContextCore::of(client_)->links().all()->empty());
}

TEST_F(Carried, ASecureLinkIsTlsOnBothConnections) {
  const auto connected = connect_as(with_key('a'), with_key('a'), server_.id());
  ASSERT_TRUE(succeeds(connected));
  EXPECT_EQ(connected->link->path().to_string(), "routed: no wire");
  EXPECT_EQ(opened_, 2);
  EXPECT_EQ(proofs_at(client_, server_).identity, "key:fleet");
  EXPECT_TRUE(eventually([&] { return proofs_at(server_, client_).identity == "key:fleet"; }));
  EXPECT_EQ(proofs_at(server_, client_).host, Proofs::Host::unknown);
  const auto again = connect_as(with_key('a'), with_key('a'), server_.id());
  ASSERT_TRUE(succeeds(again));
  EXPECT_EQ(again->link, connected->link);
  EXPECT_EQ(opened_, 3) << "it has proved once more who it is, and needs no lane";
}

TEST_F(Carried, CertificatesProveAName) {
  Security member{.profile = Profile::secure, .credentials = chain_of_three()};
  EXPECT_TRUE(succeeds(connect_as(member, member, server_.id()))) << "nobody was dialled by a name";
  EXPECT_EQ(proofs_at(client_, server_).identity, "tendon://robot/7");
  member.peer = "robot-8.example";
  EXPECT_TRUE(fails_with(connect_as(member, member, server_.id()), ErrorCode::authentication_failed,
                         "'robot-8.example' is expected"));
}

TEST_F(Carried, AnotherKeyIsRefused) {
  EXPECT_TRUE(fails_with(connect_as(with_key('b'), with_key('a'), server_.id()),
                         ErrorCode::authentication_failed));
  EXPECT_TRUE(ContextCore::of(client_)->links().all()->empty());
}

TEST_F(Carried, NeitherEndSpeaksPlaintextWithTheOther) {
  EXPECT_TRUE(fails_with(connect_as({Profile::plaintext}, with_key('a'), server_.id()),
                         ErrorCode::protocol_violation));
  EXPECT_TRUE(fails_with(connect_as(with_key('a'), {Profile::plaintext}, server_.id()),
                         ErrorCode::protocol_violation));
}

TEST_F(Carried, SecureNeedsCredentials) {
  EXPECT_TRUE(
      fails_with(Acceptor::without_socket(ContextCore::of(server_), {Profile::secure}, handler_),
                 ErrorCode::invalid_argument, "credentials"));
  EXPECT_TRUE(fails_with(connect_as({Profile::secure}, with_key('a'), server_.id()),
                         ErrorCode::invalid_argument, "credentials"));
}

TEST_F(Carried, ASideThatCallsItAnotherPathIsRefused) {
  EXPECT_TRUE(fails_with(connect_as(Profile::plaintext, PathKind::tcp, PathKind::routed),
                         ErrorCode::protocol_violation, "routed"));
}

}  // namespace
}  // namespace tendon::test
