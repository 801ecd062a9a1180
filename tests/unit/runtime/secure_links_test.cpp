// SPDX-License-Identifier: Apache-2.0
// Connections that join a secure link, or claim to be of the Context at its other end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <array>
#include <chrono>
#include <future>
#include <list>
#include <memory>
#include <string>
#include <tendon/tendon.hpp>
#include <thread>

#include "runtime/context_core.hpp"
#include "runtime/rendezvous_socket.hpp"
#include "runtime/same_host.hpp"
#include "session/machine.hpp"
#include "support/batches.hpp"
#include "support/relay.hpp"
#include "support/scratch_dir.hpp"
#include "support/secure/credentials.hpp"
#include "support/secure/secure_peer.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using namespace std::chrono_literals;
using SharedCredentials = std::shared_ptr<const secure::Credentials>;

Security secured_by(SharedCredentials credentials, std::string peer = {}) {
  return {
      .profile = Profile::secure, .credentials = std::move(credentials), .peer = std::move(peer)};
}

/// A link appears in the table soon after its `ready`.
bool has_one_member(const Context& context) {
  return eventually([&] { return context.members().size() == 1; });
}

SharedCredentials fleet() { return with_key("fleet", 'a'); }

// ---- lanes

class LanesOfASession : public ::testing::TestWithParam<std::string_view> {
 protected:
  /// Joins a lane to the session of `control` and returns the answer. A joined lane stays open.
  HandshakeStep join(const SecurePeer& control, const HelloMessage& lane) {
    return lanes_.emplace_back(listener_.address(), fleet(), control.session()).ask(lane);
  }
  [[nodiscard]] SecurePeer dial() const { return {listener_.address(), fleet()}; }
  [[nodiscard]] static HelloMessage claims_of_two_lanes() {
    HelloMessage hello = secure_claims();
    hello.limits->streams = 2;
    return hello;
  }

  const ScratchDir scratch_;
  Context server_ = Context::create({.streams = 2, .lease = kLongLease}).value();
  Listener listener_ =
      Listener::bind(server_,
                     GetParam() == "unix" ? "unix:" + (scratch_.path() / "socket").string()
                                          : std::string("127.0.0.1:0"),
                     {.security = secured_by(fleet())})
          .value();
  std::list<SecurePeer> lanes_;
};
INSTANTIATE_TEST_SUITE_P(Paths, LanesOfASession, ::testing::Values("tcp", "unix"),
                         [](const auto& path) { return std::string(path.param); });

TEST_P(LanesOfASession, JoinOnceEach) {
  SecurePeer control = dial();
  const HelloMessage hello = claims_of_two_lanes();
  const Nonce128 ticket = control.make_link(hello);
  EXPECT_TRUE(join(control, lane_of(hello, ticket, 1)).message);
  EXPECT_TRUE(is_refused(join(control, lane_of(hello, ticket, 1)), ErrorCode::protocol_violation,
                         "lane 1 has joined its link already"));
  EXPECT_TRUE(is_refused(join(control, lane_of(hello, ticket, 2)), ErrorCode::protocol_violation,
                         "lane 2 is none of those"));
  EXPECT_TRUE(join(control, lane_of(hello, ticket, 0)).message);
  EXPECT_TRUE(has_one_member(server_));
}

TEST_P(LanesOfASession, OfAnotherAreRefused) {
  SecurePeer control = dial();
  SecurePeer other = dial();
  const HelloMessage hello = claims_of_two_lanes();
  const HelloMessage others = claims_of_two_lanes();
  const Nonce128 ticket = control.make_link(hello);
  const Nonce128 others_ticket = other.make_link(others);
  for (const HelloMessage& wrong :
       {lane_of(others, others_ticket, 0), lane_of(hello, others_ticket, 0),
        lane_of(others, ticket, 1), lane_of(hello, {std::byte{1}}, 1)})
    EXPECT_TRUE(is_refused(join(control, wrong), ErrorCode::protocol_violation,
                           "of another session than its link"));
  // Nothing of the other session was used up.
  EXPECT_TRUE(join(other, lane_of(others, others_ticket, 0)).message);
  EXPECT_TRUE(join(control, lane_of(hello, ticket, 0)).message);
}

TEST_P(LanesOfASession, AreOfItAlone) {
  SecurePeer control = dial();
  const HelloMessage hello = claims_of_two_lanes();
  const Nonce128 ticket = control.make_link(hello);
  // The key of the fleet is not that of the session.
  EXPECT_TRUE(is_refused(dial().ask(lane_of(hello, ticket, 0)), ErrorCode::protocol_violation,
                         "of no session of a link"));
  EXPECT_TRUE(
      is_refused(join(control, hello), ErrorCode::protocol_violation, "a lane began as a link"));
  EXPECT_TRUE(join(control, lane_of(hello, ticket, 0)).message);
}

TEST_P(LanesOfASession, AreRefusedWhenItHasEnded) {
  std::optional<SecurePeer> control(dial());
  const HelloMessage hello = claims_of_two_lanes();
  const Nonce128 ticket = control->make_link(hello);
  const secure::TlsSession& session = control->session();
  const std::string id = session.id;
  secure::Secret<kSharedKeyBytes> key;
  std::ranges::copy(session.lane_key.bytes(), key.bytes().begin());
  ASSERT_TRUE(has_one_member(server_));
  control.reset();
  ASSERT_TRUE(eventually([&] { return server_.members().empty(); }));
  SecurePeer late(listener_.address(), fleet(), {.session_id = id, .session_key = key.bytes()});
  // The alert is that of a wrong key: tls_handshake_test.cpp has the listener's reason.
  EXPECT_TRUE(is_refused(late.ask(lane_of(hello, ticket, 0)), ErrorCode::authentication_failed,
                         "refused the credentials"));
}

TEST(SecureLanes, SixteenCarryAPipe) {
  for (const int minor : {int{kProtocolMinor}, 1}) {
    Context here = Context::create({.name = "here",
                                    .transport = Transport::tcp,
                                    .streams = kMaxStreamsPerLink,
                                    .protocol_minor = static_cast<std::uint16_t>(minor)})
                       .value();
    Context there = Context::create({.name = "there", .streams = kMaxStreamsPerLink}).value();
    Listener listener =
        Listener::bind(there, "127.0.0.1:0", {.security = secured_by(fleet())}).value();
    auto out =
        Pipe::connect(here, listener.address(), kPatience, {.security = secured_by(fleet())});
    ASSERT_TRUE(succeeds(out)) << "minor version " << minor;
    Pipe in = listener.accept(kPatience).value();
    std::thread sender([&] { EXPECT_TRUE(succeeds(out->send(patterned(5, 8 << 20), kPatience))); });
    EXPECT_TRUE(is_patterned(in.recv(kPatience).value(), 5, 8 << 20));
    sender.join();
  }
}

// ---- connect returns after `ready`

Context tcp_context(std::string name) {
  return Context::create({.name = std::move(name), .transport = Transport::tcp}).value();
}

// From the client: its ClientHello, the end of its handshake, hello, path.
constexpr std::size_t kRecordsToPath = 4;

TEST(SecureConnect, ReturnsWhenReadyHasArrived) {
  Context here = tcp_context("here");
  Context there = tcp_context("there");
  const auto listener =
      Listener::bind(there, "127.0.0.1:0", {.security = secured_by(fleet())}).value();
  Relay relay(listener.address(), kRecordsToPath);
  auto connecting = std::async(std::launch::async, [&] {
    return Pipe::connect(here, relay.address(), kPatience, {.security = secured_by(fleet())});
  });
  ASSERT_TRUE(eventually([&] { return relay.held_bytes() != 0; }));
  EXPECT_EQ(connecting.wait_for(0s), std::future_status::timeout);
  EXPECT_TRUE(here.members().empty());
  relay.release();
  EXPECT_TRUE(succeeds(connecting.get()));
}

TEST(SecureConnect, TheDeadlineNamesReady) {
  Context here = tcp_context("here");
  Context there = tcp_context("there");
  const auto listener =
      Listener::bind(there, "127.0.0.1:0", {.security = secured_by(fleet())}).value();
  // Doubles the deadline until it is long enough to reach this point on any machine.
  for (std::chrono::milliseconds deadline = 50ms; deadline < kPatience; deadline *= 2) {
    Relay relay(listener.address(), kRecordsToPath);
    const auto connected =
        Pipe::connect(here, relay.address(), deadline, {.security = secured_by(fleet())});
    EXPECT_TRUE(fails_with(connected, ErrorCode::timeout));
    if (relay.held_bytes() == 0) continue;
    EXPECT_TRUE(fails_with(connected, ErrorCode::timeout, "waiting for the peer's `ready`"));
    return;
  }
  FAIL() << "the path was never said";
}

TEST(SecureConnect, CutInTheHandshakeItIsALossAndNotAListenerWithoutAPlace) {
  const RawListener listener;
  std::thread cutter([&] {
    for (;;) {
      const OwnedFd fd = listener.accept();
      if (!fd) return;
      std::array<char, 4096> hello{};
      (void)TEMP_FAILURE_RETRY(recv(fd.get(), hello.data(), hello.size(), 0));
      send_all(fd.get(), std::string("\x16\x03\x03\x00\x7a", 5));  // a record begins
    }
  });
  Context here = tcp_context("here");
  const auto connected =
      Pipe::connect(here, listener.address(), 10 * kBriefly, {.security = secured_by(fleet())});
  EXPECT_TRUE(fails_with(connected, ErrorCode::peer_lost, "during the handshake"));
  listener.close();
  cutter.join();
}

// ---- one context id that several claim

struct TwoNames {
  std::string_view kind;
  SharedCredentials own;      // of the Context
  SharedCredentials another;  // of another member that its peer also knows
  SharedCredentials of_peer;  // accepts both
  std::string own_name;       // the name that a dialler of it expects
  std::string another_name;
};

TwoNames two_keys() {
  secure::CredentialParts both;
  both.keys.push_back(shared_key("fleet", 'a'));
  both.keys.push_back(shared_key("other", 'b'));
  return {.kind = "key",
          .own = fleet(),
          .another = with_key("other", 'b'),
          .of_peer = secure::Credentials::make(std::move(both)).value(),
          .own_name = {},
          .another_name = {}};
}

TwoNames two_certificates() {
  const Certificate authority = Certificate::authority("ours");
  const auto member = [&](const std::string& uri) {
    return with_certificate(authority.sign({.names = "URI:" + uri}), authority);
  };
  return {.kind = "certificate",
          .own = member("tendon://robot/7"),
          .another = member("tendon://robot/8"),
          .of_peer = member("tendon://robot/9"),
          .own_name = "tendon://robot/7",
          .another_name = "tendon://robot/8"};
}

class AContextsName : public ::testing::TestWithParam<bool> {
 protected:
  const TwoNames names_ = GetParam() ? two_certificates() : two_keys();
};
INSTANTIATE_TEST_SUITE_P(Proofs, AContextsName, ::testing::Bool(), [](const auto& proof) {
  return std::string(proof.param ? "certificate" : "key");
});

TEST_P(AContextsName, IsKeptByItsListener) {
  Context server = Context::create({.streams = 1, .lease = kLongLease}).value();
  const auto listener =
      Listener::bind(server, "127.0.0.1:0", {.security = secured_by(names_.of_peer)}).value();
  const HelloMessage hello = secure_claims();
  SecurePeer honest(listener.address(), names_.own);
  const Nonce128 ticket = honest.make_link(hello);
  ASSERT_TRUE(has_one_member(server));
  SecurePeer impostor(listener.address(), names_.another);
  EXPECT_TRUE(is_refused(impostor.ask(hello), ErrorCode::protocol_violation,
                         "by another key or certificate"));
  // It loses nothing, and is admitted again by its own name.
  SecurePeer lane(listener.address(), names_.own, honest.session());
  EXPECT_TRUE(lane.ask(lane_of(hello, ticket, 0)).message);
  EXPECT_TRUE(SecurePeer(listener.address(), names_.own).ask(hello).message);
  EXPECT_EQ(server.members().size(), 1u);
}

/// Answers one hello over TLS with `answer`, and waits for the end.
class SecureAnswer {
 public:
  SecureAnswer(SharedCredentials credentials, HelloMessage answer)
      : thread_([this, credentials = std::move(credentials), answer = std::move(answer)] {
          auto stream = SecureStream::make(std::make_unique<SocketStream>(listener_.accept()),
                                           {.role = secure::TlsHandshake::Role::server,
                                            .credentials = credentials})
                            .value();
          HandshakeStream talk(std::move(stream), Handshake::acceptor());
          HandshakeStep step;
          EXPECT_TRUE(eventually([&] {
            step = talk.advance();
            return step.message || step.next == Next::failed;
          }));
          EXPECT_TRUE(step.message);
          if (!step.message) return;
          step = talk.reply(answer);
          EXPECT_TRUE(eventually([&] {
            step = talk.advance();
            return step.next != Next::read;
          }));
        }) {}
  SecureAnswer(const SecureAnswer&) = delete;
  SecureAnswer& operator=(const SecureAnswer&) = delete;
  ~SecureAnswer() { thread_.join(); }
  [[nodiscard]] const std::string& address() const { return listener_.address(); }

 private:
  RawListener listener_;
  std::thread thread_;
};

TEST_P(AContextsName, IsKeptByItsDialler) {
  Context here = tcp_context("here");
  Context there = tcp_context("there");
  Listener listener =
      Listener::bind(there, "127.0.0.1:0", {.security = secured_by(names_.own)}).value();
  // A dialler with a key proves that key, and dials each peer by the key that it has for it.
  const bool is_key = !GetParam();
  auto out = Pipe::connect(
      here, listener.address(), kPatience,
      {.security = secured_by(is_key ? names_.own : names_.of_peer, names_.own_name)});
  ASSERT_TRUE(succeeds(out));
  Pipe in = listener.accept(kPatience).value();
  HelloMessage claim = secure_claims();
  claim.context_id = there.id();
  claim.ticket[0] = std::byte{1};
  const SecureAnswer impostor(names_.another, claim);
  EXPECT_TRUE(fails_with(
      Pipe::connect(
          here, impostor.address(), kPatience,
          {.security = secured_by(is_key ? names_.another : names_.of_peer, names_.another_name)}),
      ErrorCode::protocol_violation, "by another key or certificate"));
  EXPECT_EQ(here.members().size(), 1u);
  ASSERT_TRUE(succeeds(out->send(numbered(7), kPatience)));
  EXPECT_EQ(number_of(in.recv(kPatience).value()), 7);
}

TEST(AContextsKey, OfOneLabelIsAnotherKey) {
  Context server = Context::create({.lease = kLongLease}).value();
  const auto listener =
      Listener::bind(server, "127.0.0.1:0", {.security = secured_by(fleet())}).value();
  const auto second =
      Listener::bind(server, "127.0.0.1:0", {.security = secured_by(with_key("fleet", 'b'))})
          .value();
  const HelloMessage hello = secure_claims();
  SecurePeer honest(listener.address(), fleet());
  (void)honest.make_link(hello);
  ASSERT_TRUE(has_one_member(server));
  SecurePeer impostor(second.address(), with_key("fleet", 'b'));
  EXPECT_TRUE(is_refused(impostor.ask(hello), ErrorCode::protocol_violation,
                         "by another key or certificate"));
}

// A program loads its new certificate while links by the old one live.
TEST(AContextsCertificate, MayBeRenewed) {
  const Certificate authority = Certificate::authority("ours");
  const auto member = [&](const std::string& uri) {
    return with_certificate(authority.sign({.names = "URI:" + uri}), authority);
  };
  Context here = tcp_context("here");
  Context there = tcp_context("there");
  Listener listener =
      Listener::bind(there, "127.0.0.1:0", {.security = secured_by(member("tendon://robot/9"))})
          .value();
  const auto connect = [&](const SharedCredentials& own) {
    return Pipe::connect(here, listener.address(), kPatience,
                         {.security = secured_by(own, "tendon://robot/9")});
  };
  const auto pipe = connect(member("tendon://robot/7"));
  ASSERT_TRUE(succeeds(pipe));
  EXPECT_TRUE(succeeds(connect(member("tendon://robot/7"))));
}

// ---- this very Context

TEST(OwnContext, IsReachedAtItsListenersAlone) {
  Context context = tcp_context("self");
  const ListenOptions secured{.security = secured_by(fleet())};
  for (const std::string address : {"127.0.0.1:0", "0.0.0.0:0"}) {
    const auto listener = Listener::bind(context, address, secured).value();
    const std::string port = listener.address().substr(listener.address().rfind(':'));
    const auto itself =
        Pipe::connect(context, "127.0.0.1" + port, kPatience, {.security = secured_by(fleet())});
    EXPECT_TRUE(succeeds(itself)) << address;
    const Relay back("127.0.0.1" + port);
    EXPECT_TRUE(fails_with(
        Pipe::connect(context, back.address(), kPatience, {.security = secured_by(fleet())}),
        ErrorCode::protocol_violation, "leads the connection back"));
  }
}

// ---- the proof of the same host

TEST(SameHostOverTls, ThroughARelayItIsRefused) {
  Context here = Context::create({.name = "here"}).value();
  Context there = Context::create({.name = "there"}).value();
  const auto listener =
      Listener::bind(there, "127.0.0.1:0", {.security = secured_by(fleet())}).value();
  const Relay relay(listener.address());
  const auto pipe =
      Pipe::connect(here, relay.address(), kPatience, {.security = secured_by(fleet())});
  ASSERT_TRUE(succeeds(pipe));
  EXPECT_THAT(pipe->path().to_string(), StartsWith("tcp"));
  EXPECT_THAT(pipe->path().to_string(), HasSubstr("relays bytes"));
}

// A member that ends TLS on both sides can claim the addresses that the listener sees. It cannot
// produce the value that the session of another connection has exported.
TEST(SameHostOverTls, IsForTheSessionOfItsConnection) {
  Context server = Context::create({}).value();
  const auto listener =
      Listener::bind(server, "127.0.0.1:0", {.security = secured_by(fleet())}).value();
  HelloMessage hello = secure_claims();
  hello.boot_id = boot_id();
  hello.uid = user_id();
  SecurePeer other(listener.address(), fleet());
  ASSERT_TRUE(other.ask(hello).message);
  enum class Mark { none, others, own };
  for (const Mark mark : {Mark::none, Mark::others, Mark::own}) {
    SecurePeer control(listener.address(), fleet());
    const auto answer = control.ask(hello);
    ASSERT_TRUE(answer.message);
    const std::string path = find_rendezvous(answer.message->token).value();
    auto meeting = std::make_unique<RendezvousSocket>(
        begin_connection(unix_socket_address(path).value(), "test").value());
    RendezvousSocket& socket = *meeting;
    HandshakeStream talk(std::move(meeting), Handshake::connector());
    const auto hear = [&](HandshakeStep step) {
      EXPECT_TRUE(eventually([&] {
        if (step.next == Next::read) step = talk.advance();
        return step.next != Next::read;
      }));
      return step;
    };
    ASSERT_TRUE(hear(talk.reply(hello)).message);
    SameHostProof proof = SameHostProof::make().value();
    const OwnedFd doorbell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    std::string connection = connection_text(control.stream().fd(), ConnectionEnd::connector);
    if (mark != Mark::none) connection += mark_of((mark == Mark::own ? control : other).session());
    const HandshakeStep proved =
        hear(proof.send_attach(talk, socket, doorbell.get(), std::move(connection)));
    if (mark == Mark::own) {
      EXPECT_TRUE(proved.message);
    } else {
      EXPECT_TRUE(is_refused(proved, ErrorCode::protocol_violation, "another session"));
    }
  }
}

}  // namespace
}  // namespace tendon::test
