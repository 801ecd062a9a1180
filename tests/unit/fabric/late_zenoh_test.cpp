// SPDX-License-Identifier: Apache-2.0
// A session that may be used before there is a router, over the double of Zenoh.
#include "fabric/zenoh/late_zenoh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <tendon/fabric/node.hpp>

#include "fabric/nodes/context_fabric.hpp"
#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/counting_port.hpp"
#include "support/expect.hpp"
#include "support/live_zenoh.hpp"
#include "support/told_lines.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::Ending;
using detail::LateZenoh;
using detail::SessionState;
using detail::TokenChange;
using detail::ZenohMessage;
using detail::ZenohPort;
using Handle = ZenohPort::Handle;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

KeyExpression key(std::string_view text) { return KeyExpression::parse(text).value(); }

class LateSession : public testing::Test {
 protected:
  // Starts a session whose router answers from open_router() on.
  std::unique_ptr<LateZenoh> start(std::uint8_t host = 1) {
    return LateZenoh::begin([this, host]() -> Result<std::unique_ptr<ZenohPort>> {
             ++tries_;
             if (!router_answers_)
               return Error{ErrorCode::unreachable, "test", "no router answered yet"};
             return network_.open(host);
           })
        .value();
  }
  ZenohPort::OnToken tokens() {
    return [this](TokenChange change, std::string_view text) {
      told_.add((change == TokenChange::came ? "+" : "-") + std::string(text));
    };
  }
  ZenohPort::OnEnd ends() {
    return
        [this](Ending ending) { told_.add(ending == Ending::complete ? "complete" : "timed out"); };
  }
  static ZenohMessage message(const std::string& key) {
    return {.key = key, .payload = {}, .attachment = {}};
  }

  LiveZenoh network_;
  std::atomic<bool> router_answers_{false};
  std::atomic<int> tries_{0};
  ToldLines told_;
};

TEST_F(LateSession, DeclaresWhatWasDeclaredBeforeItsRouterCame) {
  const auto other = network_.open(2);
  const auto late = start();
  ToldLines states;
  const Handle state =
      late->on_state([&](SessionState now) { states.add(now == SessionState::up ? "up" : "down"); })
          .value();
  const Handle own = late->token(key("n/late")).value();
  const Handle watch = late->watch(key("n/*"), tokens()).value();
  const Handle heard =
      late->subscribe(key("m/*"), [&](const ZenohMessage& came) { told_.add(came.key); }).value();
  const Handle answers = late->answer(key("ask/late"),
                                      [](std::unique_ptr<detail::ZenohQuestion> question) {
                                        question->answer(message("ask/late"));
                                      })
                             .value();
  ASSERT_TRUE(eventually([&] { return tries_ >= 1; }));
  EXPECT_EQ(late->state(), SessionState::down);
  EXPECT_TRUE(succeeds(late->put(message("m/1"))));
  router_answers_ = true;
  EXPECT_THAT(states.take(1), ElementsAre("up"));
  EXPECT_EQ(late->state(), SessionState::up);
  const Handle token = other->token(key("n/other")).value();
  EXPECT_THAT(told_.take(1), ElementsAre("+n/other"));
  ASSERT_TRUE(succeeds(other->put(message("m/2"))));
  EXPECT_THAT(told_.take(1), ElementsAre("m/2")) << "what was put before went nowhere";
  const Handle query = other
                           ->query(
                               message("ask/late"), kPatience,
                               [&](const ZenohMessage& came) { told_.add(came.key); }, ends())
                           .value();
  EXPECT_THAT(told_.take(2), ElementsAre("ask/late", "complete"));
  const Handle found = other
                           ->get(
                               key("n/late"), kPatience,
                               [&](std::string_view text) { told_.add(std::string(text)); }, ends())
                           .value();
  EXPECT_THAT(told_.take(2), ElementsAre("n/late", "complete"));
}

/// Keeps the callbacks, for a test that reports what a real session has missed.
class KeepingPort final : public CountingPort {
 public:
  struct Kept {
    std::size_t told = 0;
    Stopwatch stopwatch;
    OnToken on_token;
    OnDropped on_dropped;
  };
  KeepingPort(std::unique_ptr<ZenohPort> port, Kept& kept)
      : CountingPort(std::move(port), kept.told, kept.stopwatch), kept_(kept) {}
  [[nodiscard]] Result<Handle> watch(const KeyExpression& pattern, OnToken on_token) override {
    kept_.on_token = on_token;
    return CountingPort::watch(pattern, std::move(on_token));
  }
  [[nodiscard]] Result<Handle> subscribe(const KeyExpression& pattern, OnMessage on_message,
                                         OnDropped on_dropped) override {
    kept_.on_dropped = on_dropped;
    return CountingPort::subscribe(pattern, std::move(on_message), std::move(on_dropped));
  }

 private:
  Kept& kept_;
};

TEST_F(LateSession, SaysWhatItsSessionHasMissed) {
  KeepingPort::Kept kept;
  const auto late = LateZenoh::begin([&]() -> Result<std::unique_ptr<ZenohPort>> {
                      return std::make_unique<KeepingPort>(network_.open(1), kept);
                    }).value();
  const Handle watch = late->watch(key("n/*"),
                                   [&](TokenChange change, std::string_view text) {
                                     EXPECT_EQ(change, TokenChange::missed);
                                     told_.add("missed tokens" + std::string(text));
                                   })
                           .value();
  const Handle heard = late->subscribe(
                               key("m/*"), [](const ZenohMessage&) {},
                               [&](std::string_view text, std::uint64_t count) {
                                 told_.add(std::string(text) + " " + std::to_string(count));
                               })
                           .value();
  ASSERT_TRUE(succeeds(late->wait(kPatience)));
  kept.on_token(TokenChange::missed, {});
  EXPECT_THAT(told_.take(1), ElementsAre("missed tokens"));
  kept.on_dropped("m/1", 3);
  EXPECT_THAT(told_.take(1), ElementsAre("m/1 3"));
}

TEST_F(LateSession, AsksWhatWasAskedBeforeItsRouterCame) {
  const auto other = network_.open(2);
  const Handle token = other->token(key("n/other")).value();
  const auto late = start();
  ASSERT_TRUE(eventually([&] { return tries_ >= 1; }));
  const Handle request =
      late->get(
              key("n/*"), kPatience, [&](std::string_view text) { told_.add(std::string(text)); },
              ends())
          .value();
  router_answers_ = true;
  EXPECT_THAT(told_.take(2), ElementsAre("n/other", "complete"));
}

TEST_F(LateSession, EndsRequestsAtTheirTimeoutWhileItIsAwaited) {
  const auto late = start();
  const Handle request = late->get(
                                 key("n/*"), kBriefly, [](std::string_view) {}, ends())
                             .value();
  const Handle query = late->query(
                               message("n/1"), kBriefly, [](const ZenohMessage&) {}, ends())
                           .value();
  EXPECT_THAT(told_.take(2), ElementsAre("timed out", "timed out"));
  EXPECT_EQ(late->state(), SessionState::down);
}

TEST_F(LateSession, DoesNotDeclareWhatWasWithdrawnBefore) {
  const auto other = network_.open(2);
  const Handle watch = other->watch(key("n/*"), tokens()).value();
  const auto late = start();
  Handle gone = late->token(key("n/gone")).value();
  const Handle stays = late->token(key("n/stays")).value();
  gone = nullptr;
  router_answers_ = true;
  EXPECT_THAT(told_.take(1), ElementsAre("+n/stays"));
  EXPECT_THAT(told_.all(), IsEmpty());
}

TEST_F(LateSession, PublishersPutFromTheMomentThatItIsThere) {
  const auto other = network_.open(2);
  const Handle heard =
      other->subscribe(key("m/*"), [&](const ZenohMessage& came) { told_.add(came.key); }).value();
  const auto late = start();
  ToldLines matching;
  const auto publisher =
      late->publisher(key("m/1"), detail::Audience::other_sessions,
                      [&](detail::Matching now) {
                        matching.add(now == detail::Matching::somebody ? "somebody" : "nobody");
                      })
          .value();
  EXPECT_THAT(matching.take(1), ElementsAre("nobody"));
  EXPECT_EQ(publisher->matching(), detail::Matching::nobody);
  EXPECT_TRUE(succeeds(publisher->put({}, {}, "")));
  router_answers_ = true;
  ASSERT_TRUE(eventually([&] { return publisher->matching() == detail::Matching::somebody; }));
  EXPECT_TRUE(succeeds(publisher->put({}, {}, "")));
  EXPECT_THAT(told_.take(1), ElementsAre("m/1"));
  EXPECT_THAT(told_.all(), IsEmpty());
}

TEST_F(LateSession, EndsWhileItIsAwaitedAndItsHandlesOutliveIt) {
  auto late = start();
  const Handle watch = late->watch(key("n/*"), tokens()).value();
  const Handle request = late->get(
                                 key("n/*"), kPatience, [](std::string_view) {}, ends())
                             .value();
  ASSERT_TRUE(eventually([&] { return tries_ >= 1; }));
  late.reset();
  EXPECT_THAT(told_.all(), IsEmpty());
}

TEST_F(LateSession, SaysWhyThereIsNone) {
  const auto late = start();
  EXPECT_TRUE(fails_with(late->wait(kBriefly), ErrorCode::unreachable, "no router answered"));
  ASSERT_TRUE(eventually([&] { return tries_ >= 1; }));
  router_answers_ = true;
  EXPECT_TRUE(succeeds(late->wait(kPatience)));
  EXPECT_EQ(late->state(), SessionState::up);
}

// ---- nodes

class BackgroundNodes : public LateSession {
 protected:
  Program join(const std::string& name, std::uint8_t host) {
    Context context = Context::create({.name = name, .lease = kLongLease}).value();
    NodeOptions options = options_of(name);
    const auto fabric =
        detail::ContextFabric::of(detail::ContextCore::of(context), Profile::plaintext).value();
    auto client = start(host);
    LateZenoh* const late = client.get();
    EXPECT_TRUE(succeeds(fabric->adopt(
        options.routers,
        {.server = nullptr, .client = std::move(client), .state = nullptr, .late = late})));
    Node node = Node::join(context, std::move(options), kPatience).value();
    return {std::move(context), std::move(node)};
  }
  static NodeOptions options_of(const std::string& name) {
    return {.domain = "brain",
            .name = name,
            .routers = {"the double"},
            .discovery = DiscoveryNeed::background,
            .security = {Profile::plaintext}};
  }
};

TEST_F(BackgroundNodes, JoinWithoutARouterAndFindEachOtherWhenItComes) {
  Program vision = join("vision", 1);
  Program motor = join("motor", 2);
  const Told told(motor.node);
  Publisher publisher = Publisher::declare(vision.node, "vision/objects").value();
  Subscriber subscriber = Subscriber::declare(motor.node, "vision/*").value();
  constexpr std::string_view kNoRouter = "no router answered yet";
  EXPECT_TRUE(fails_with(motor.node.survey(kBriefly), ErrorCode::timeout, kNoRouter));
  EXPECT_TRUE(
      fails_with(publisher.wait_for_subscribers(1, kBriefly), ErrorCode::timeout, kNoRouter));
  EXPECT_TRUE(
      fails_with(subscriber.wait_for_publishers(1, kBriefly), ErrorCode::timeout, kNoRouter));
  EXPECT_TRUE(fails_with(subscriber.recv(kBriefly), ErrorCode::timeout, kNoRouter));
  EXPECT_TRUE(fails_with(motor.node.call("arm/plan", numbered(1), kBriefly), ErrorCode::unreachable,
                         kNoRouter));
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::discovery_lost).size() == 1; }));
  EXPECT_THAT(told.of(FabricEventKind::discovery_lost)[0].reason, HasSubstr(kNoRouter));
  router_answers_ = true;
  ASSERT_TRUE(succeeds(publisher.wait_for_subscribers(1, kPatience)));
  ASSERT_TRUE(succeeds(publisher.publish(numbered(7), kPatience)));
  EXPECT_EQ(number_of(*subscriber.recv(kPatience).value().tensors), 7);
  ASSERT_TRUE(succeeds(motor.node.survey(kPatience)));
  EXPECT_THAT(motor.node.nodes(), ElementsAre("motor", "vision"));
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::discovery_found).size() == 1; }));
}

TEST_F(BackgroundNodes, AreToldOfARouterThatIsLostAndFoundAgain) {
  router_answers_ = true;
  Program motor = join("motor", 1);
  const Told told(motor.node);
  ASSERT_TRUE(succeeds(motor.node.survey(kPatience)));
  network_.stop_router();
  ASSERT_TRUE(eventually([&] { return told.of(FabricEventKind::discovery_lost).size() == 1; }));
  EXPECT_TRUE(fails_with(motor.node.survey(kBriefly), ErrorCode::timeout, "no router answers"));
  network_.heal();
  ASSERT_TRUE(eventually([&] {
    const auto found = told.of(FabricEventKind::discovery_found);
    return !found.empty() && succeeds(motor.node.survey(kBriefly));
  }));
}

// A router that another one replaces at once is no loss.
TEST_F(BackgroundNodes, AreNotToldOfARouterThatIsBackAtOnce) {
  router_answers_ = true;
  Program motor = join("motor", 1);
  const Told told(motor.node);
  ASSERT_TRUE(succeeds(motor.node.survey(kPatience)));
  network_.stop_router();
  network_.heal();
  ASSERT_TRUE(succeeds(motor.node.survey(kPatience)));
  network_.stop_router();
  ASSERT_TRUE(eventually([&] { return !told.of(FabricEventKind::discovery_lost).empty(); }));
  EXPECT_EQ(told.of(FabricEventKind::discovery_lost).size(), 1U);
}

TEST_F(BackgroundNodes, OfOneContextAreJoinedByOneThatNeedsTheRouter) {
  Program motor = join("motor", 1);
  NodeOptions needs = options_of("second");
  needs.discovery = DiscoveryNeed::required;
  ASSERT_TRUE(eventually([&] { return tries_ >= 1; }));
  EXPECT_TRUE(fails_with(Node::join(motor.context, needs, kBriefly), ErrorCode::unreachable,
                         "no router answered yet"));
  router_answers_ = true;
  EXPECT_TRUE(succeeds(Node::join(motor.context, needs, kPatience)));
}

}  // namespace
}  // namespace tendon::test
