// SPDX-License-Identifier: Apache-2.0
// The double of Zenoh in the tests of discovery: it behaves as sessions of Zenoh do, and does
// nothing else.
#include "support/zenoh_network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/expect.hpp"

namespace {

using namespace std::chrono_literals;
using namespace tendon::detail;
using tendon::Access;
using tendon::ErrorCode;
using tendon::KeyExpression;
using tendon::Storage;
using tendon::test::fails_with;
using tendon::test::ZenohNetwork;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

using Lines = std::vector<std::string>;
using Port = std::unique_ptr<ZenohPort>;
using Handle = ZenohPort::Handle;

KeyExpression key(std::string_view text) { return KeyExpression::parse(text).value(); }

Storage storage(const std::string& text) {
  const auto owner = std::make_shared<std::string>(text);
  return {owner, reinterpret_cast<std::byte*>(owner->data()), owner->size(), Access::read_only};
}
std::string text(const Storage& storage) { return std::string(tendon::as_text(storage.bytes())); }

ZenohMessage message(const std::string& on, const std::string& payload) {
  return {on, storage(payload), storage("")};
}

// Collects the events of a port as lines.
ZenohPort::OnToken tokens_to(Lines& lines) {
  return [&lines](TokenChange change, std::string_view token) {
    lines.push_back((change == TokenChange::came ? "+" : "-") + std::string(token));
  };
}
ZenohPort::OnKey keys_to(Lines& lines) {
  return [&lines](std::string_view token) { lines.emplace_back(token); };
}
ZenohPort::OnMessage messages_to(Lines& lines) {
  return [&lines](const ZenohMessage& one) { lines.push_back(one.key + "=" + text(one.payload)); };
}
ZenohPort::OnEnd end_to(Lines& lines) {
  return [&lines](Ending ending) {
    lines.emplace_back(ending == Ending::complete ? "end" : "timeout");
  };
}
Lines taken(Lines& lines) { return std::exchange(lines, {}); }

class ZenohNetworks : public testing::Test {
 protected:
  ZenohNetwork network_{{}};
  Port a_ = network_.open();
  Port b_ = network_.open();
  Port c_ = network_.open();
  Lines lines_;
};

TEST_F(ZenohNetworks, TellsOfTokensThatComeAndGo) {
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  Handle one = a_->token(key("n/1")).value();
  const Handle other = a_->token(key("m/1")).value();
  const Handle own = b_->token(key("n/2")).value();
  EXPECT_THAT(lines_, IsEmpty());
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), UnorderedElementsAre("+n/1", "+n/2"));
  one.reset();
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), ElementsAre("-n/1"));
}

TEST_F(ZenohNetworks, TellsOfAKeyOnceHoweverManyAnnounceIt) {
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  Handle one = a_->token(key("n/1")).value();
  const Handle two = c_->token(key("n/1")).value();
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), ElementsAre("+n/1"));
  one.reset();
  network_.run_until_quiet();
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ZenohNetworks, AWatchHearsOfWhatWasThereWhenItGoes) {
  Handle one = a_->token(key("n/1")).value();
  network_.run_until_quiet();
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  network_.run_until_quiet();
  EXPECT_THAT(lines_, IsEmpty());
  const Handle get = b_->get(key("n/*"), 1s, keys_to(lines_), end_to(lines_)).value();
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), ElementsAre("n/1", "end"));
  a_.reset();
  network_.run_until_quiet();
  EXPECT_THAT(lines_, ElementsAre("-n/1"));
}

TEST_F(ZenohNetworks, ADeadSessionTakesAllWithIt) {
  const Handle watch = b_->watch(key("**"), tokens_to(lines_)).value();
  const Handle one = a_->token(key("n/1")).value();
  const Handle dead = a_->subscribe(key("**"), messages_to(lines_)).value();
  network_.run_until_quiet();
  taken(lines_);
  a_.reset();
  EXPECT_TRUE(b_->put(message("x", "1")).has_value());
  network_.run_until_quiet();
  EXPECT_THAT(lines_, ElementsAre("-n/1"));
}

TEST_F(ZenohNetworks, NothingIsCalledAfterItWasWithdrawn) {
  Handle watch = b_->watch(key("**"), tokens_to(lines_)).value();
  Handle get = b_->get(key("**"), 1s, keys_to(lines_), end_to(lines_)).value();
  Handle subscriber = b_->subscribe(key("**"), messages_to(lines_)).value();
  const Handle one = a_->token(key("n/1")).value();
  EXPECT_TRUE(a_->put(message("x", "1")).has_value());
  watch.reset();
  get.reset();
  subscriber.reset();
  network_.run_until_quiet();
  network_.run_for(2s);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ZenohNetworks, WhatIsPutArrivesInOrder) {
  const Handle wild = b_->subscribe(key("a/**"), messages_to(lines_)).value();
  const Handle other = b_->subscribe(key("b"), messages_to(lines_)).value();
  Lines expected;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(a_->put(message("a/x", std::to_string(i))).has_value());
    expected.push_back("a/x=" + std::to_string(i));
  }
  network_.run_until_quiet();
  EXPECT_EQ(lines_, expected);
  EXPECT_TRUE(fails_with(a_->put(message("a//x", "")), ErrorCode::invalid_argument, "empty"));
}

TEST_F(ZenohNetworks, AQueryEndsWhenAllHaveAnswered) {
  std::unique_ptr<ZenohQuestion> kept;
  const Handle at_a = a_->answer(key("ask/*"), [](auto question) {
                          question->answer(message("ask/a", text(question->asked().payload) + "1"));
                          question->answer(message("ask/a", "2"));
                        }).value();
  const Handle at_c =
      c_->answer(key("ask/x"), [&](auto question) { kept = std::move(question); }).value();
  const Handle query =
      b_->query(message("ask/x", "q"), 1s, messages_to(lines_), end_to(lines_)).value();
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), ElementsAre("ask/a=q1", "ask/a=2"));
  ASSERT_NE(kept, nullptr);
  kept->answer(message("ask/c", "3"));
  kept.reset();
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), ElementsAre("ask/c=3", "end"));
  network_.run_for(2s);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ZenohNetworks, AQueryEndsAtItsTimeout) {
  std::unique_ptr<ZenohQuestion> kept;
  const Handle at_a =
      a_->answer(key("ask"), [&](auto question) { kept = std::move(question); }).value();
  const Handle query =
      b_->query(message("ask", ""), 1s, messages_to(lines_), end_to(lines_)).value();
  const Handle nobody =
      b_->query(message("none", ""), 1s, messages_to(lines_), end_to(lines_)).value();
  network_.run_for(999ms);
  EXPECT_THAT(taken(lines_), ElementsAre("end"));
  network_.run_for(1ms);
  EXPECT_THAT(taken(lines_), ElementsAre("timeout"));
  kept->answer(message("ask", "late"));
  network_.run_until_quiet();
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(ZenohNetworks, APartitionIsSeenAsTokensThatGoAndComeAgain) {
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  const Handle near = c_->token(key("n/c")).value();
  const Handle far = a_->token(key("n/a")).value();
  const Handle subscriber = b_->subscribe(key("x"), messages_to(lines_)).value();
  network_.run_until_quiet();
  taken(lines_);

  EXPECT_TRUE(a_->put(message("x", "lost on its way")).has_value());
  const std::array<const ZenohPort*, 1> apart{a_.get()};
  network_.part(apart);
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), ElementsAre("-n/a"));
  EXPECT_TRUE(a_->put(message("x", "not sent")).has_value());
  const Handle unheard = a_->token(key("n/a2")).value();
  const Handle get = b_->get(key("n/*"), 1s, keys_to(lines_), end_to(lines_)).value();
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), ElementsAre("n/c", "end"));

  network_.heal();
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), UnorderedElementsAre("+n/a", "+n/a2"));
  EXPECT_EQ(b_->state(), SessionState::up);
}

TEST_F(ZenohNetworks, ADeadRouterTakesAllTokensWhileAllLive) {
  const auto state_to = [](Lines& lines) {
    return [&lines](SessionState state) {
      lines.emplace_back(state == SessionState::up ? "up" : "down");
    };
  };
  Lines states;
  const Handle state = b_->on_state(state_to(states)).value();
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  const Handle one = a_->token(key("n/a")).value();
  const Handle own = b_->token(key("n/b")).value();
  network_.run_until_quiet();
  taken(lines_);

  // The request asks the router that ends, so it ends by its timeout.
  const Handle get = b_->get(key("n/*"), 1s, keys_to(states), end_to(states)).value();
  network_.stop_router();
  const Port born_now = network_.open();
  const Handle alone = born_now->token(key("n/d")).value();
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), ElementsAre("-n/a"));
  EXPECT_THAT(taken(states), ElementsAre("down"));
  EXPECT_EQ(b_->state(), SessionState::down);
  network_.run_for(1s);
  EXPECT_THAT(taken(states), ElementsAre("timeout"));

  network_.heal();
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), UnorderedElementsAre("+n/a", "+n/d"));
  EXPECT_THAT(taken(states), ElementsAre("up"));
}

TEST(ZenohNetworkLosses, AreOneInSoMany) {
  ZenohNetwork network({.loses_token_in = 4, .loses_put_in = 2});
  const Port a = network.open();
  const Port b = network.open();
  Lines tokens;
  Lines puts;
  const Handle watch = b->watch(key("n/*"), tokens_to(tokens)).value();
  const Handle subscriber = b->subscribe(key("x"), messages_to(puts)).value();
  std::vector<Handle> kept;
  for (int i = 0; i < 1000; ++i) {
    kept.push_back(a->token(key("n/" + std::to_string(i))).value());
    EXPECT_TRUE(a->put(message("x", "")).has_value());
  }
  network.run_until_quiet();
  EXPECT_GT(tokens.size(), 600U);
  EXPECT_LT(tokens.size(), 900U);
  EXPECT_GT(puts.size(), 350U);
  EXPECT_LT(puts.size(), 650U);
  // Keys that a watch missed are there for a session that asks.
  Lines found;
  const Handle get = b->get(key("n/*"), 1s, keys_to(found), end_to(found)).value();
  network.run_until_quiet();
  EXPECT_EQ(found.size(), 1001U);
}

// Hundreds of nodes that announce their tokens and watch others, and are killed, restarted and cut
// off meanwhile.
class Crowd {
 public:
  Crowd(std::uint64_t seed, std::size_t nodes)
      : network_({.seed = seed}), random_(seed + 1), nodes_(nodes) {
    for (std::size_t i = 0; i < nodes; ++i) start(i);
  }

  void disturb(int times) {
    for (int i = 0; i < times; ++i) {
      network_.after(ZenohNetwork::Time(random_() % 20000), [this] {
        Node& node = nodes_[random_() % nodes_.size()];
        switch (random_() % 8) {
          case 0: {
            std::vector<const ZenohPort*> apart;
            for (const Node& one : nodes_) {
              if (one.port != nullptr && random_() % 2 == 0) apart.push_back(one.port.get());
            }
            network_.part(apart);
            break;
          }
          case 1:
            network_.stop_router();
            break;
          case 2:
            network_.heal();
            break;
          default:
            stop(node);
            start(static_cast<std::size_t>(&node - nodes_.data()));
            break;
        }
      });
    }
    network_.run_until_quiet();
    network_.heal();
    network_.run_for(1s);
  }

  [[nodiscard]] const Lines& log() const { return log_; }

  // Expects that each node believes in all tokens that match its watch, and in nothing else.
  void expect_truth() const {
    for (const Node& node : nodes_) {
      std::set<std::string> there;
      for (const Node& other : nodes_) {
        if (node.wanted->intersects(*other.token)) there.insert(other.token->text());
      }
      EXPECT_EQ(node.believed, there);
    }
  }

 private:
  struct Node {
    std::optional<KeyExpression> token;
    std::optional<KeyExpression> wanted;
    std::set<std::string> believed;
    Port port;
    Handle watch;
    Handle get;
    Handle announced;
  };

  void stop(Node& node) {
    node.watch.reset();
    node.get.reset();
    node.announced.reset();
    node.port.reset();
    node.believed.clear();
  }
  void start(std::size_t number) {
    Node& node = nodes_[number];
    const std::string context = std::to_string(++starts_);
    node.token = key("@t/pub/" + context + "/topic/" + std::to_string(number % 7));
    node.wanted = key("@t/pub/*/topic/" + std::to_string(random_() % 7));
    node.port = network_.open();
    node.watch =
        node.port
            ->watch(*node.wanted,
                    [this, &node, context](TokenChange change, auto at) {
                      if (change == TokenChange::came) {
                        node.believed.emplace(at);
                      } else {
                        node.believed.erase(std::string(at));
                      }
                      log_.push_back(std::to_string(network_.now().count()) + " " + context +
                                     (change == TokenChange::came ? " +" : " -") + std::string(at));
                    })
            .value();
    node.announced = node.port->token(*node.token).value();
    ask(node);
  }
  // Asks for the tokens at the beginning, until the answer is complete.
  void ask(Node& node) {
    node.get =
        node.port
            ->get(
                *node.wanted, 100ms, [&node](std::string_view at) { node.believed.emplace(at); },
                [this, &node](Ending ending) {
                  if (ending == Ending::timed_out) ask(node);
                })
            .value();
  }

  ZenohNetwork network_;
  std::mt19937_64 random_;
  Lines log_;
  std::uint64_t starts_ = 0;
  std::vector<Node> nodes_;
};

TEST(ZenohNetworkCrowd, EndsWithTheTruth) {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << std::endl;
  Crowd crowd(seed, 200);
  crowd.disturb(30);
  crowd.expect_truth();
}

TEST(ZenohNetworkCrowd, TakesTheSameCourseFromTheSameSeed) {
  std::array<Lines, 3> logs;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    Crowd crowd(i == 2 ? 8 : 7, 60);
    crowd.disturb(30);
    logs.at(i) = crowd.log();
  }
  EXPECT_GT(logs[0].size(), 500U);
  EXPECT_EQ(logs[0], logs[1]);
  EXPECT_NE(logs[0], logs[2]);
}

TEST_F(ZenohNetworks, TellsPublishersWhetherAnybodyTakesWhatTheyPut) {
  Lines told;
  const auto publisher =
      a_->publisher(key("n/1"), Audience::other_sessions, [&](Matching matching) {
          told.emplace_back(matching == Matching::somebody ? "+" : "-");
        }).value();
  const Handle own = a_->subscribe(key("n/*"), messages_to(lines_)).value();
  network_.run_until_quiet();
  EXPECT_THAT(taken(told), IsEmpty());
  EXPECT_EQ(publisher->matching(), Matching::nobody);
  Handle other = b_->subscribe(key("n/*"), messages_to(lines_)).value();
  EXPECT_EQ(publisher->matching(), Matching::somebody);
  network_.run_until_quiet();
  EXPECT_THAT(taken(told), ElementsAre("+"));
  ASSERT_TRUE(publisher->put(storage("x"), {}, "zenoh/bytes").has_value());
  network_.run_until_quiet();
  EXPECT_THAT(taken(lines_), ElementsAre("n/1=x"));
  EXPECT_EQ(network_.put_count(), 1U);
  network_.stop_router();
  network_.run_until_quiet();
  EXPECT_THAT(taken(told), ElementsAre("-"));
  network_.heal();
  network_.run_until_quiet();
  EXPECT_THAT(taken(told), ElementsAre("+"));
  other = nullptr;
  network_.run_until_quiet();
  EXPECT_THAT(taken(told), ElementsAre("-"));
}

}  // namespace
