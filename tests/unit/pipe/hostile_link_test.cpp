// SPDX-License-Identifier: Apache-2.0
// An admitted peer over sockets that abuses its rights: pipes, links, their number.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_client.hpp"

namespace tendon::test {
namespace {

class HostileLink : public testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<RawClient> make_link(const detail::HelloMessage& who) {
    auto client = std::make_unique<RawClient>(listener_.address(), who);
    EXPECT_TRUE(is_ready(client->choose()));
    return client;
  }
  /// Requests a further ticket of the listener.
  [[nodiscard]] detail::Nonce128 ticket(const detail::HelloMessage& who) {
    return RawClient(listener_.address(), who).answer.value().ticket;
  }
  static std::string text_of(Result<Message> message) {
    if (!message) return "error: " + message.error().message();
    return std::string(as_text(message->bytes.bytes()));
  }
  Context context_ = Context::create({.name = "victim"}).value();
  Listener listener_ =
      Listener::bind(context_, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
};

TEST_F(HostileLink, ANumberInUseIsRefusedAndItsPipeLivesOn) {
  const auto who = claims();
  const auto link = make_link(who);
  link->open(1, link->ticket());
  Pipe pipe = listener_.accept(kPatience).value();
  link->open(1, ticket(who));
  EXPECT_TRUE(is_error(link->next(), 1, ErrorCode::protocol_violation, {"pipe 1"}));
  link->send_bytes(1, 1, "still here");
  EXPECT_EQ(text_of(pipe.recv_message(kPatience)), "still here");
  EXPECT_TRUE(fails_with(listener_.accept(kBriefly), ErrorCode::timeout));
}

TEST_F(HostileLink, PipeZeroIsRefused) {
  const auto who = claims();
  const auto link = make_link(who);
  link->open(1, link->ticket());
  Pipe pipe = listener_.accept(kPatience).value();
  link->open(0, ticket(who));
  // The link itself may be ended for it; no pipe results.
  EXPECT_TRUE(fails_with(listener_.accept(std::chrono::milliseconds(300)), ErrorCode::timeout));
}

TEST_F(HostileLink, OnlyTheSideThatConnectedOpensPipes) {
  RawServer server;
  const detail::Nonce128 stolen = ticket(claims());
  std::optional<RawWire::Said> answer;
  std::thread serving([&] {
    RawWire control = server.meet();
    (void)RawServer::admit(control);
    const RawWire lane = server.lane();
    (void)control.next();  // its open
    control.open(7, stolen);
    answer = control.next();
    (void)read_to_end(control.fd());
  });
  auto pipe =
      Pipe::connect(context_, server.address(), kPatience, {.security = {Profile::plaintext}});
  EXPECT_TRUE(succeeds(pipe));
  EXPECT_TRUE(fails_with(listener_.accept(std::chrono::milliseconds(300)), ErrorCode::timeout));
  ASSERT_TRUE(succeeds(context_.close(kPatience)));
  serving.join();
  EXPECT_TRUE(is_error(answer, 7, ErrorCode::protocol_violation, {"connected"}));
}

TEST_F(HostileLink, AStrangerDoesNotEndAnUnprovedLinkOfAnotherProcess) {
  auto who = claims();
  const auto link = make_link(who);
  link->open(1, link->ticket());
  Pipe pipe = listener_.accept(kPatience).value();
  std::vector<detail::HelloMessage> others(kMaxClaimsPerContext, who);
  ++others[0].incarnation;
  ++others[1].pid;
  others[2].boot_id = {std::byte{7}};
  others[3].host = "a fourth host";
  std::vector<std::unique_ptr<RawClient>> beside;
  for (std::size_t n = 0; n + 1 < kMaxClaimsPerContext; ++n) {
    // Nobody knows which of them is genuine, so none keeps another out.
    beside.push_back(make_link(others[n]));
    beside.back()->open(1, beside.back()->ticket());
    EXPECT_TRUE(succeeds(listener_.accept(kPatience)));
  }
  RawClient one_more(listener_.address(), others[3]);
  EXPECT_TRUE(is_refusal(one_more.choose(), ErrorCode::permission_denied, {"stranger"}));
  link->send_bytes(1, 1, "still here");
  EXPECT_EQ(text_of(pipe.recv_message(kPatience)), "still here");
}

TEST_F(HostileLink, TheSameProcessMayReplaceItsUnprovedLink) {
  const auto who = claims();
  const auto link = make_link(who);
  link->open(1, link->ticket());
  Pipe pipe = listener_.accept(kPatience).value();
  const auto newer = make_link(who);
  EXPECT_TRUE(fails_with(pipe.recv_message(kPatience), ErrorCode::peer_lost, "new link"));
  newer->open(1, newer->ticket());
  EXPECT_TRUE(succeeds(listener_.accept(kPatience)));
}

// Where the program makes progress itself, a waiting thread runs no callbacks. A peer must not make
// them accumulate.
TEST(HostileOpens, LeaveNoCallbacksBehind) {
  Context victim = Context::create({.name = "victim", .progress = Progress::manual}).value();
  Listener listener =
      Listener::bind(victim, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  Context honest = Context::create({.name = "honest"}).value();
  std::optional<Pipe> from;
  std::thread connecting(
      [&] { from = Pipe::connect(honest, listener.address(), kPatience).value(); });
  Pipe to = listener.accept(kPatience).value();
  connecting.join();
  std::thread receiver([&] { EXPECT_TRUE(succeeds(to.recv(kPatience))); });
  {
    RawClient stranger(listener.address(), claims());
    ASSERT_TRUE(is_ready(stranger.choose()));
    constexpr std::uint32_t kOpens = 400;
    for (std::uint32_t pipe = 1; pipe <= kOpens; ++pipe) stranger.open(pipe, stranger.ticket());
    std::uint32_t refused = 0;
    while (refused < kOpens - kBacklog) {
      const auto said = stranger.next();
      ASSERT_TRUE(said);
      if (said->descriptor.kind == detail::MessageKind::error) ++refused;
    }
    EXPECT_LT(detail::ContextCore::of(victim)->waiting_callbacks(), 10u);
  }
  ASSERT_TRUE(succeeds(from->send(numbered(1), kPatience)));
  receiver.join();
}

// Peers that connect and leave must not do so either, where the program watches member events.
TEST(HostileOpens, ThatComeAndGoLeaveNoMoreEventsThanALimit) {
  Context victim = Context::create({.name = "victim", .progress = Progress::manual}).value();
  auto& core = *detail::ContextCore::of(victim);
  std::size_t heard = 0;
  victim.on_member([&](const MemberEvent&) { ++heard; });
  for (std::size_t i = 0; i < 2 * detail::EventCallbacks<MemberEvent>::kMaxWaiting; ++i)
    core.publish({MemberEventKind::joined, "stranger", "comes", {}}, LogLevel::info);
  EXPECT_EQ(core.waiting_callbacks(), detail::EventCallbacks<MemberEvent>::kMaxWaiting);
  while (victim.progress()) {
  }
  EXPECT_EQ(heard, detail::EventCallbacks<MemberEvent>::kMaxWaiting);
  core.publish({MemberEventKind::left, "stranger", "goes", {}}, LogLevel::info);
  while (victim.progress()) {
  }
  EXPECT_EQ(heard, detail::EventCallbacks<MemberEvent>::kMaxWaiting + 1);
}

class HostileNewcomer : public PipeTest {};
TENDON_ON_BOTH_PATHS(HostileNewcomer);

TEST_P(HostileNewcomer, DoesNotEndAProvedLinkWhateverItClaims) {
  Context server = Context::create({.name = "server"}).value();
  Context client = Context::create({.name = "client", .transport = way().transport}).value();
  Listener listener =
      Listener::bind(server, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  Pipe from = Pipe::connect(client, listener.address(), kPatience).value();
  Pipe to = listener.accept(kPatience).value();
  const PeerIdentity known = to.peer();
  auto who = claims(known.pid);
  who.context_id = known.context;
  who.incarnation = known.incarnation;
  who.uid = known.uid;
  who.host = known.host;
  who.name = known.name;
  RawClient newcomer(listener.address(), who);
  ASSERT_TRUE(newcomer.answer);
  EXPECT_TRUE(is_refusal(newcomer.choose(), ErrorCode::permission_denied,
                         {"client", "'plaintext'", "'local'"}));
  ASSERT_TRUE(succeeds(from.send(numbered(8), kPatience)));
  EXPECT_EQ(number_of(to.recv(kPatience).value()), 8);
}

TEST_F(HostileLink, OneThatOpensNoPipeEnds) {
  const auto used = make_link(claims(1));
  used->open(1, used->ticket());
  Pipe pipe = listener_.accept(kPatience).value();
  const auto idle = make_link(claims(2));
  const auto said = idle->next();
  ASSERT_TRUE(said);
  EXPECT_EQ(said->descriptor.kind, detail::MessageKind::goodbye);
  EXPECT_FALSE(idle->next());
  used->send_bytes(1, 1, "still here");
  EXPECT_EQ(text_of(pipe.recv_message(kPatience)), "still here");
  EXPECT_TRUE(eventually([&] { return context_.members().size() == 1; }));
}

TEST_F(HostileLink, LinksHaveALimitAndAtItIdleOnesGiveWay) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t before = limit.rlim_cur;
  constexpr rlim_t kNeeded =
      kDescriptorsBesideLinks + (kDescriptorsPerLink + 1) * kMaxLinksPerContext;
  if (limit.rlim_max < kNeeded) GTEST_SKIP() << "too few descriptors";
  limit.rlim_cur = limit.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  {
    std::vector<std::unique_ptr<RawClient>> links;
    std::vector<Pipe> pipes;
    const auto first = claims(1);
    while (links.size() + 1 < kMaxLinksPerContext) {
      auto link = make_link(links.empty() ? first : claims(2));
      link->open(1, link->ticket());
      pipes.push_back(listener_.accept(kPatience).value());
      links.push_back(std::move(link));
    }
    const auto idle = make_link(claims(3));
    // A further peer replaces the idle one.
    auto more = make_link(claims(4));
    const auto said = idle->next();
    ASSERT_TRUE(said);
    EXPECT_EQ(said->descriptor.kind, detail::MessageKind::goodbye);
    more->open(1, more->ticket());
    pipes.push_back(listener_.accept(kPatience).value());
    EXPECT_TRUE(eventually([&] { return context_.members().size() == kMaxLinksPerContext; }));
    // Now each link carries a pipe.
    EXPECT_TRUE(is_refusal(RawClient(listener_.address(), claims(5)).answer, ErrorCode::server_busy,
                           {std::to_string(kMaxLinksPerContext)}));
    RawClient known(listener_.address(), first);
    ASSERT_TRUE(known.answer);
    EXPECT_TRUE(is_ready(known.choose(detail::Reuse::reuse))) << "one link is enough";
    pipes.pop_back();
    more.reset();
    EXPECT_TRUE(eventually([&] {
      const RawClient next(listener_.address(), claims(6));
      return next.answer && next.answer->kind == detail::HelloKind::hello;
    }));
  }
  limit.rlim_cur = before;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace
}  // namespace tendon::test
