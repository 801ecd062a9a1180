// SPDX-License-Identifier: Apache-2.0
// The additions of protocol 1.1 to a link: pipes for a purpose, opened by either side; one link for
// both directions of connecting; messages about the link itself. Each is tested with a 1.0 peer,
// too.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/acceptor.hpp"
#include "support/batches.hpp"
#include "support/member_events.hpp"
#include "support/pipe_pair.hpp"
#include "support/raw_client.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using detail::Link;
using detail::LinkRole;
using detail::MessageKind;
using detail::Purpose;
using detail::Retirement;

/// Keeps the messages of a pipe.
class Sink final : public detail::MessageSink {
 public:
  void on_message(detail::Incoming&& incoming) override {
    std::lock_guard lock(mutex_);
    const detail::Descriptor& descriptor = incoming.descriptor;
    if (descriptor.kind == MessageKind::error) refused_ = static_cast<ErrorCode>(descriptor.tag);
    if (descriptor.kind == MessageKind::bytes) ++bytes_;
  }
  bool claim_destination(const detail::Descriptor&, std::vector<MutableBytes>&) override {
    return false;
  }
  bool admits(const detail::Descriptor&) override { return true; }
  void on_transfer_ended(const detail::Transfer&) override {}
  void on_link_failed(const Error&) override {}

  [[nodiscard]] std::optional<ErrorCode> refused() const {
    std::lock_guard lock(mutex_);
    return refused_;
  }
  [[nodiscard]] int bytes() const {
    std::lock_guard lock(mutex_);
    return bytes_;
  }

 private:
  mutable std::mutex mutex_;
  std::optional<ErrorCode> refused_;
  int bytes_ = 0;
};

/// Serves a purpose.
class Handler final : public detail::OpenHandler {
 public:
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<detail::MessageSink>> on_open(std::shared_ptr<Link>,
                                                       const detail::Descriptor& open,
                                                       Bytes said) override {
    std::lock_guard lock(mutex_);
    pipes_.push_back(open.pipe);
    said_.emplace_back(reinterpret_cast<const char*>(said.data()), said.size());
    return std::shared_ptr<detail::MessageSink>(sink);
  }
  void on_context_closed() override {}

  [[nodiscard]] std::vector<std::uint32_t> pipes() const {
    std::lock_guard lock(mutex_);
    return pipes_;
  }
  [[nodiscard]] std::vector<std::string> said() const {
    std::lock_guard lock(mutex_);
    return said_;
  }
  const std::shared_ptr<Sink> sink = std::make_shared<Sink>();

 private:
  mutable std::mutex mutex_;
  std::vector<std::uint32_t> pipes_;
  std::vector<std::string> said_;
};

ContextCore& core_of(const Context& context) { return *ContextCore::of(context); }
std::shared_ptr<Link> link_of(const Context& context) {
  return core_of(context).links().all()->front();
}
std::size_t link_count(const Context& context) { return core_of(context).links().all()->size(); }

/// Opens a pipe for a purpose at the other end of the only link of `context`.
Result<std::uint32_t> open_for(const Context& context, Purpose purpose, std::string_view said,
                               std::shared_ptr<Sink> sink) {
  std::uint32_t number = 0;
  TENDON_CHECK(core_of(context).open_pipe(
      *link_of(context), {.purpose = purpose, .header = as_bytes(said)}, [&](std::uint32_t pipe) {
        number = pipe;
        return sink;
      }));
  return number;
}

/// Asks the peer for its time; nothing when it does not answer. `step` is called meanwhile.
std::optional<detail::ClockOffset> clock_offset(
    const Context& context, Link& link,
    const std::function<void()>& step = [] { std::this_thread::yield(); }) {
  core_of(context).ask_clock(link);
  std::optional<detail::ClockOffset> offset;
  (void)eventually(
      [&] {
        offset = core_of(context).links().clock_of(link, detail::boot_time_ns());
        return offset.has_value();
      },
      step);
  return offset;
}

class LinkUse : public PipeTest {
 protected:
  static ContextOptions version_1_0() { return {.protocol_minor = 0}; }
};
TENDON_ON_EVERY_WAY(LinkUse);

TEST_P(LinkUse, EitherSideOpensPipesForAPurpose) {
  PipePair pair = connect();
  const auto at_client = std::make_shared<Handler>();
  const auto at_server = std::make_shared<Handler>();
  for (const auto& [context, handler] :
       {std::pair(&pair.client_context, at_client), std::pair(&pair.server_context, at_server)})
    ASSERT_TRUE(
        succeeds(core_of(*context).purposes().add(Purpose::fabric, {handler, Profile::local})));
  const auto sink = std::make_shared<Sink>();
  const auto progress = [&] { pair.client_context.progress(); };
  EXPECT_EQ(open_for(pair.client_context, Purpose::fabric, "one", sink).value(), 3u)
      << "1 is the pipe of the pair";
  EXPECT_EQ(open_for(pair.server_context, Purpose::fabric, "two", sink).value(), 2u);
  EXPECT_TRUE(
      eventually([&] { return at_client->said() == std::vector<std::string>{"two"}; }, progress));
  EXPECT_TRUE(
      eventually([&] { return at_server->said() == std::vector<std::string>{"one"}; }, progress));
  EXPECT_EQ(at_client->pipes(), std::vector<std::uint32_t>{2});
  EXPECT_EQ(at_server->pipes(), std::vector<std::uint32_t>{3});
  EXPECT_FALSE(sink->refused());
  // The pipe of the pair is unharmed.
  ASSERT_TRUE(succeeds(pair.client.send(numbered(1), kPatience)));
  EXPECT_TRUE(pair.server.recv(kPatience));
}

TEST_P(LinkUse, APurposeThatNobodyServesIsRefused) {
  PipePair pair = connect();
  const auto sink = std::make_shared<Sink>();
  ASSERT_TRUE(open_for(pair.client_context, Purpose::call, {}, sink));
  EXPECT_TRUE(eventually([&] { return sink->refused() == ErrorCode::unreachable; },
                         [&] { pair.client_context.progress(); }));
  const auto handler = std::make_shared<Handler>();
  detail::Purposes& purposes = core_of(pair.server_context).purposes();
  ASSERT_TRUE(succeeds(purposes.add(Purpose::call, {handler, Profile::local})));
  EXPECT_TRUE(fails_with(purposes.add(Purpose::call, {handler, Profile::local}),
                         ErrorCode::invalid_argument));
  const auto other = std::make_shared<Handler>();
  purposes.remove(Purpose::call, other.get());
  EXPECT_TRUE(
      fails_with(purposes.add(Purpose::call, {other, Profile::local}), ErrorCode::invalid_argument))
      << "only its own handler takes it away";
  purposes.remove(Purpose::call, handler.get());
  EXPECT_TRUE(succeeds(purposes.add(Purpose::call, {handler, Profile::local})));
}

TEST_P(LinkUse, APeerThatSpeaks10NeedsATicketAndOpensAlone) {
  PipePair pair = connect(version_1_0(), {});
  const auto handler = std::make_shared<Handler>();
  ASSERT_TRUE(succeeds(
      core_of(pair.server_context).purposes().add(Purpose::fabric, {handler, Profile::local})));
  const auto sink = std::make_shared<Sink>();
  EXPECT_TRUE(fails_with(open_for(pair.server_context, Purpose::fabric, {}, sink),
                         ErrorCode::not_supported));
  EXPECT_EQ(open_for(pair.client_context, Purpose::fabric, {}, sink).value(), 2u);
  EXPECT_TRUE(eventually([&] { return sink->refused() == ErrorCode::protocol_violation; },
                         [&] { pair.client_context.progress(); }));
  EXPECT_TRUE(handler->pipes().empty());
  auto [from, to] = another_pipe(pair);
  ASSERT_TRUE(succeeds(from.send(numbered(1), kPatience)));
  EXPECT_TRUE(to.recv(kPatience));
  EXPECT_EQ(link_count(pair.client_context), 1u);
}

TEST_P(LinkUse, ANumberOfTheOtherSideIsRefused) {
  PipePair pair = connect();
  const std::shared_ptr<Link> link = link_of(pair.client_context);
  const auto sink = std::make_shared<Sink>();
  {
    std::lock_guard receiving(link->receive_mutex());
    link->attach(20, sink);
  }
  link->post({.kind = MessageKind::open, .pipe = 20, .schema = 1});
  EXPECT_TRUE(eventually([&] { return sink->refused() == ErrorCode::protocol_violation; },
                         [&] { pair.client_context.progress(); }));
}

TEST_P(LinkUse, AConnectUsesALinkThatThePeerMade) {
  PipePair pair = connect();
  Listener back = Listener::bind(pair.client_context, "127.0.0.1:0").value();
  std::thread driver;
  std::atomic<bool> over{false};
  if (way().client_progress == Progress::manual) {
    driver = std::thread([&] {
      while (!over) pair.client_context.progress();
    });
  }
  auto from = Pipe::connect(pair.server_context, back.address(), kPatience);
  over = true;
  if (driver.joinable()) driver.join();
  ASSERT_TRUE(from) << from.error().message();
  Pipe to = back.accept(kPatience).value();
  ASSERT_TRUE(succeeds(from->send(numbered(7), kPatience)));
  EXPECT_TRUE(to.recv(kPatience));
  EXPECT_EQ(link_count(pair.client_context), 1u);
  EXPECT_EQ(link_count(pair.server_context), 1u);
}

TEST_P(LinkUse, With10EachDirectionOfConnectingHasItsLink) {
  PipePair pair = connect({}, version_1_0());
  if (way().client_progress == Progress::manual) GTEST_SKIP() << "the other ways show it";
  Listener back = Listener::bind(pair.client_context, "127.0.0.1:0").value();
  Pipe from = Pipe::connect(pair.server_context, back.address(), kPatience).value();
  Pipe to = back.accept(kPatience).value();
  ASSERT_TRUE(succeeds(from.send(numbered(7), kPatience)));
  EXPECT_TRUE(to.recv(kPatience));
  EXPECT_EQ(link_count(pair.client_context), 2u);
  EXPECT_EQ(link_count(pair.server_context), 2u);
}

TEST_P(LinkUse, TheClockOfAPeerOnThisMachineIsOurs) {
  PipePair pair = connect();
  const auto offset = clock_offset(pair.server_context, *link_of(pair.server_context),
                                   [&] { pair.client_context.progress(); });
  ASSERT_TRUE(offset.has_value());
  EXPECT_LE(std::abs(offset->offset_ns), offset->error_ns);
  EXPECT_GT(offset->error_ns, 0);
}

TEST_P(LinkUse, APeerThatSpeaks10IsNotAskedForItsTime) {
  PipePair pair = connect(version_1_0());
  const std::shared_ptr<Link> link = link_of(pair.server_context);
  const std::uint64_t sent = link->stats().messages_sent;
  core_of(pair.server_context).ask_clock(*link);
  EXPECT_EQ(link->stats().messages_sent, sent);
}

/// A link whose pipes are closed, ten seconds later.
class Retiring : public LinkUse {
 protected:
  // Does what a tick does once the link was idle for long enough.
  static void let_time_pass(const Context& context) {
    ContextCore& core = core_of(context);
    const auto links = core.links().all();
    if (links->empty()) return;
    const std::shared_ptr<Link>& link = links->front();
    const auto now = Retirement::Clock::now();
    const auto before = now - Retirement::kRetireAfter;
    std::lock_guard receiving(link->receive_mutex());
    (void)core.links().tick_retirement(*link, Retirement::Use::used, before);
    (void)core.links().tick_retirement(*link, Retirement::Use::unused, before);
    if (core.links().tick_retirement(*link, Retirement::Use::unused, now) ==
        Retirement::Action::say_retire)
      link->post({.kind = MessageKind::retire});
  }
  static Retirement::State state_of(const Context& context) {
    return core_of(context).links().entry_of(*link_of(context))->retirement.state();
  }
};
TENDON_ON_BOTH_PATHS(Retiring);

TEST_P(Retiring, BothSidesEndItAndNobodyHasLeft) {
  MemberEventLog seen_by_client;
  MemberEventLog seen_by_server;
  PipePair pair = connect();
  seen_by_client.watch(pair.client_context);
  seen_by_server.watch(pair.server_context);
  ASSERT_TRUE(succeeds(pair.client.close(kPatience)));
  ASSERT_TRUE(fails_with(pair.server.recv(kPatience), ErrorCode::end_of_stream));
  ASSERT_TRUE(succeeds(pair.server.close(kPatience)));
  const std::shared_ptr<Link> at_client = link_of(pair.client_context);
  ASSERT_TRUE(eventually([&] {
    if (at_client->ended()) return true;
    let_time_pass(pair.server_context);
    let_time_pass(pair.client_context);
    return false;
  }));
  EXPECT_TRUE(at_client->retired());
  EXPECT_TRUE(eventually([&] { return link_count(pair.server_context) == 0; }));
  EXPECT_EQ(link_count(pair.client_context), 0u);
  // A later connect makes another link, and reports it.
  auto [from, to] = another_pipe(pair);
  ASSERT_TRUE(succeeds(from.send(numbered(1), kPatience)));
  EXPECT_TRUE(to.recv(kPatience));
  EXPECT_TRUE(seen_by_client.wait_for(MemberEventKind::joined, "server"));
  EXPECT_TRUE(seen_by_server.wait_for(MemberEventKind::joined, "client"));
  for (MemberEventLog* log : {&seen_by_client, &seen_by_server}) {
    EXPECT_EQ(log->count(MemberEventKind::left), 0u);
    EXPECT_EQ(log->count(MemberEventKind::lost), 0u);
  }
}

TEST_P(Retiring, NotWhileThePeerHasAPipe) {
  PipePair pair = connect();
  const std::shared_ptr<Link> link = link_of(pair.client_context);
  ASSERT_TRUE(succeeds(pair.client.close(kPatience)));  // the server's end of the pipe is open
  let_time_pass(pair.server_context);
  let_time_pass(pair.client_context);
  ASSERT_EQ(state_of(pair.client_context), Retirement::State::asked);
  // The peer has processed all earlier messages.
  ASSERT_TRUE(clock_offset(pair.client_context, *link));
  EXPECT_FALSE(link->ended());
  EXPECT_EQ(state_of(pair.server_context), Retirement::State::used);
}

TEST_P(Retiring, NotBeforeTheLastViewHasGone) {
  if (!way().is_shm()) GTEST_SKIP() << "over sockets a view lies in the receiver's own memory";
  PipePair pair = connect();
  ASSERT_TRUE(succeeds(pair.client.send(patterned(1, 100'000), kPatience)));
  std::optional<TensorDict> view = pair.server.recv(RecvMode::view_only, kPatience).value();
  const std::shared_ptr<Link> link = link_of(pair.client_context);
  ASSERT_TRUE(succeeds(pair.client.close(kPatience)));
  ASSERT_TRUE(succeeds(pair.server.close(kPatience)));
  EXPECT_EQ(link->stats().slots.sent_count, 1u);
  EXPECT_EQ(link_of(pair.server_context)->stats().view_count, 1u);
  let_time_pass(pair.server_context);
  let_time_pass(pair.client_context);
  ASSERT_TRUE(clock_offset(pair.client_context, *link));
  EXPECT_FALSE(link->ended());
  view.reset();
  EXPECT_EQ(link_of(pair.server_context)->stats().view_count, 0u);
  // No send looks for the slot that has returned.
  EXPECT_TRUE(eventually([&] {
    if (link->retired()) return true;
    let_time_pass(pair.server_context);
    let_time_pass(pair.client_context);
    return false;
  }));
}

TEST_P(Retiring, AConnectTakesTheWordBack) {
  PipePair pair = connect();
  const std::shared_ptr<Link> link = link_of(pair.client_context);
  ASSERT_TRUE(succeeds(pair.client.close(kPatience)));
  let_time_pass(pair.client_context);
  auto [from, to] = another_pipe(pair);
  ASSERT_TRUE(succeeds(pair.server.close(kPatience)));
  ASSERT_TRUE(succeeds(from.send(numbered(1), kPatience)));
  EXPECT_TRUE(to.recv(kPatience));
  EXPECT_FALSE(link->ended());
  EXPECT_EQ(link_count(pair.client_context), 1u);
}

TEST_P(Retiring, APeerThatSpeaks10HearsNoWord) {
  PipePair pair = connect({}, version_1_0());
  EXPECT_FALSE(link_of(pair.client_context)->features().has(detail::Feature::retire));
}

// One side's claim is no agreement: its goodbye is handled like that of any leaving peer.
TEST(LinkUseWithoutProof, AGoodbyeThatClaimsAgreementIsALeavingWhileThereArePipes) {
  for (const std::uint16_t minor : {std::uint16_t{0}, std::uint16_t{1}}) {
    MemberEventLog seen;
    Context server = Context::create({}).value();
    seen.watch(server);
    Listener listener =
        Listener::bind(server, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
    detail::HelloMessage hello = claims();
    hello.features = detail::Features::of_minor(minor).bits();
    RawClient stranger(listener.address(), hello);
    ASSERT_TRUE(is_ready(stranger.choose()));
    stranger.open(1, stranger.ticket());
    const auto pipe = listener.accept(kPatience);
    ASSERT_TRUE(succeeds(pipe));
    stranger.post({.kind = MessageKind::goodbye, .tag = 1}, {});
    EXPECT_TRUE(seen.wait_for(MemberEventKind::left, hello.context_id));
  }
}

TEST(LinkUseWithoutProof, APurposeForThisUserIsRefused) {
  Context server = Context::create({}).value();
  Listener listener =
      Listener::bind(server, "127.0.0.1:0", {.security = {Profile::plaintext}}).value();
  const auto handler = std::make_shared<Handler>();
  ASSERT_TRUE(succeeds(core_of(server).purposes().add(Purpose::fabric, {handler, Profile::local})));
  detail::HelloMessage hello = claims();
  hello.features = detail::Features::of_minor(1).bits();
  RawClient stranger(listener.address(), hello);
  ASSERT_TRUE(is_ready(stranger.choose()));
  stranger.post({.kind = MessageKind::open,
                 .flags = detail::Descriptor::kInline,
                 .pipe = 1,
                 .schema = static_cast<std::uint32_t>(Purpose::fabric)},
                {});
  EXPECT_TRUE(is_error(stranger.next(), 1, ErrorCode::permission_denied, {"stranger"}));
  // Nor does this side use the stranger's link as one of the Context that it names.
  detail::LinkTable& links = core_of(server).links();
  using detail::ReachBy;
  EXPECT_EQ(links.usable(hello.context_id, Profile::plaintext, ReachBy::address), nullptr);
  EXPECT_EQ(links.usable(hello.context_id, Profile::plaintext, ReachBy::context), nullptr);
  EXPECT_NE(links.usable(hello.context_id, Profile::plaintext, ReachBy::any), nullptr);
  EXPECT_EQ(links.usable(hello.context_id, Profile::local, ReachBy::any), nullptr);
}

}  // namespace
}  // namespace tendon::test
