// SPDX-License-Identifier: Apache-2.0
// Sessions of the real Zenoh, which must do what tests/unit/fabric/zenoh_network_test.cpp checks
// for the double. Compiled only if Tendon is built with Zenoh.
#include "fabric/zenoh/zenoh_session.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <thread>
#include <vector>

#include "support/child.hpp"
#include "support/expect.hpp"
#include "support/scratch_dir.hpp"
#include "support/told_lines.hpp"

namespace {

using namespace std::chrono_literals;
using namespace tendon::detail;
using tendon::Access;
using tendon::ErrorCode;
using tendon::KeyExpression;
using tendon::Storage;
using tendon::test::eventually;
using tendon::test::exited_with;
using tendon::test::fails_with;
using tendon::test::kBriefly;
using tendon::test::kPatience;
using tendon::test::run_in_child;
using tendon::test::ScratchDir;
using tendon::test::succeeds;
using tendon::test::ToldLines;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

using Lines = std::vector<std::string>;
using Port = std::unique_ptr<ZenohPort>;
using Handle = ZenohPort::Handle;

/// A timeout that no test reaches: its request ends before.
constexpr std::chrono::milliseconds kLong{60'000};

KeyExpression key(std::string_view text) { return KeyExpression::parse(text).value(); }

Storage storage(const std::string& text) {
  const auto owner = std::make_shared<std::string>(text);
  return {owner, reinterpret_cast<std::byte*>(owner->data()), owner->size(), Access::read_only};
}
std::string text(const Storage& storage) { return std::string(tendon::as_text(storage.bytes())); }

ZenohMessage message(const std::string& on, const std::string& payload,
                     const std::string& attachment = "") {
  return {on, storage(payload), storage(attachment)};
}

// Collects the events of a port as lines.
ZenohPort::OnToken tokens_to(ToldLines& lines) {
  return [&lines](TokenChange change, std::string_view token) {
    lines.add((change == TokenChange::came ? "+" : "-") + std::string(token));
  };
}
ZenohPort::OnKey keys_to(ToldLines& lines) {
  return [&lines](std::string_view token) { lines.add(std::string(token)); };
}
ZenohPort::OnMessage messages_to(ToldLines& lines) {
  return [&lines](const ZenohMessage& one) { lines.add(one.key + "=" + text(one.payload)); };
}
ZenohPort::OnEnd end_to(ToldLines& lines) {
  return [&lines](Ending ending) { lines.add(ending == Ending::complete ? "end" : "timeout"); };
}

// A star: clients of one router, which listens on a unix socket.
class ZenohSessions : public testing::Test {
 protected:
  ZenohSessions() {
    // One process may run several of these tests.
    unsetenv("ZENOH_CONFIG_OVERRIDE");
    start_router();
    a_ = client();
    b_ = client();
    c_ = client();
  }

  void start_router() {
    router_ = open_zenoh({.mode = ZenohMode::router, .listen = {place_}}, kPatience).value();
  }
  [[nodiscard]] Port client() const {
    return open_zenoh({.mode = ZenohMode::client, .connect = {place_}}, kPatience).value();
  }
  // Returns the keys that are there, then how the request ended.
  static Lines found(ZenohPort& port, std::string_view pattern) {
    ToldLines lines;
    ToldLines end;
    const Handle get = port.get(key(pattern), kLong, keys_to(lines), end_to(end)).value();
    Lines all = end.take(1);
    const Lines keys = lines.all();
    all.insert(all.begin(), keys.begin(), keys.end());
    return all;
  }
  // Waits until the router has everything that the port sent before: it answers this request later.
  static void settle(ZenohPort& port) { EXPECT_THAT(found(port, "settled"), ElementsAre("end")); }
  // Cuts connections as if a cable was pulled: the clients' ends of their sockets, in the order of
  // their opening.
  void cut_connections() const {
    const std::string path = (dir_.path() / "star.zenoh").string();
    int cut = 0;
    for (int fd = 0; fd < 1024; ++fd) {
      sockaddr_un peer{};
      socklen_t size = sizeof peer;
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
      if (peer.sun_family == AF_UNIX && peer.sun_path == path && shutdown(fd, SHUT_RDWR) == 0) {
        ++cut;
      }
    }
    EXPECT_EQ(cut, 3);
  }
  static bool becomes(const ZenohPort& port, SessionState state) {
    return eventually([&] { return port.state() == state; });
  }

  const ScratchDir dir_;
  const std::string place_ = "unixsock-stream/" + (dir_.path() / "star.zenoh").string();
  Port router_;
  Port a_;
  Port b_;
  Port c_;
  ToldLines lines_;
};

TEST_F(ZenohSessions, TellOfTokensThatComeAndGo) {
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  settle(*b_);
  Handle one = a_->token(key("n/1")).value();
  const Handle other = a_->token(key("m/1")).value();
  const Handle own = b_->token(key("n/2")).value();
  EXPECT_THAT(lines_.take(2), UnorderedElementsAre("+n/1", "+n/2"));
  one.reset();
  EXPECT_THAT(lines_.take(1), ElementsAre("-n/1"));
  EXPECT_THAT(lines_.all(), IsEmpty());
}

TEST_F(ZenohSessions, TellOfAKeyOnceHoweverManyAnnounceIt) {
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  settle(*b_);
  Handle one = a_->token(key("n/1")).value();
  EXPECT_THAT(lines_.take(1), ElementsAre("+n/1"));
  const Handle two = c_->token(key("n/1")).value();
  settle(*c_);
  one.reset();
  const Handle last = a_->token(key("n/last")).value();
  EXPECT_THAT(lines_.take(1), ElementsAre("+n/last"));
}

TEST_F(ZenohSessions, AWatchHearsOfWhatWasThereWhenItGoes) {
  Handle one = a_->token(key("n/1")).value();
  settle(*a_);
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  // The get() does not wait for the watch.
  EXPECT_THAT(found(*b_, "n/*"), ElementsAre("n/1", "end"));
  one.reset();
  EXPECT_THAT(lines_.take(1), ElementsAre("-n/1"));
}

TEST_F(ZenohSessions, ADeadSessionTakesAllWithIt) {
  const Handle watch = b_->watch(key("**"), tokens_to(lines_)).value();
  settle(*b_);
  const Handle one = a_->token(key("n/1")).value();
  const Handle dead = a_->subscribe(key("**"), messages_to(lines_)).value();
  EXPECT_THAT(lines_.take(1), ElementsAre("+n/1"));
  a_.reset();
  EXPECT_THAT(lines_.take(1), ElementsAre("-n/1"));
  EXPECT_THAT(found(*c_, "**"), ElementsAre("end"));
  EXPECT_TRUE(succeeds(b_->put(message("x", "1"))));
  EXPECT_THAT(lines_.all(), IsEmpty());
}

TEST_F(ZenohSessions, NothingIsToldAfterItWasWithdrawn) {
  Handle watch = b_->watch(key("**"), tokens_to(lines_)).value();
  Handle subscriber = b_->subscribe(key("**"), messages_to(lines_)).value();
  std::unique_ptr<ZenohQuestion> kept;
  ToldLines asked;
  const Handle answerer = c_->answer(key("ask"), [&](auto question) {
                              kept = std::move(question);
                              asked.add("");
                            }).value();
  settle(*c_);
  Handle query = b_->query(message("ask", ""), kLong, messages_to(lines_), end_to(lines_)).value();
  EXPECT_THAT(asked.take(1), ElementsAre(""));
  watch.reset();
  subscriber.reset();
  query.reset();
  kept->answer(message("ask", "late"));
  kept.reset();

  ToldLines seen;
  const Handle other = b_->watch(key("**"), tokens_to(seen)).value();
  const Handle reader = b_->subscribe(key("**"), messages_to(seen)).value();
  settle(*b_);
  const Handle one = a_->token(key("n/1")).value();
  EXPECT_TRUE(succeeds(a_->put(message("x", "1"))));
  EXPECT_THAT(seen.take(2), UnorderedElementsAre("+n/1", "x=1"));
  EXPECT_THAT(lines_.all(), IsEmpty());
}

TEST_F(ZenohSessions, WhatIsPutArrivesInOrder) {
  const Handle wild = b_->subscribe(key("a/**"), messages_to(lines_)).value();
  const Handle other = b_->subscribe(key("b"), messages_to(lines_)).value();
  settle(*b_);
  const std::uint64_t puts = zenoh_puts();
  Lines expected;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(succeeds(a_->put(message("a/x", std::to_string(i)))));
    expected.push_back("a/x=" + std::to_string(i));
  }
  EXPECT_EQ(lines_.take(100), expected);
  EXPECT_EQ(zenoh_puts(), puts + 100);
  EXPECT_TRUE(fails_with(a_->put(message("a//x", "")), ErrorCode::invalid_argument, "empty"));
}

TEST_F(ZenohSessions, PublishersAreToldWhetherAnybodyTakesWhatTheyPut) {
  ToldLines told;
  auto publisher = a_->publisher(key("n/1"), Audience::other_sessions, [&](Matching matching) {
                       told.add(matching == Matching::somebody ? "+" : "-");
                     }).value();
  // Its own session has another way to itself.
  const Handle own = a_->subscribe(key("n/*"), messages_to(lines_)).value();
  settle(*a_);
  EXPECT_EQ(publisher->matching(), Matching::nobody);
  ToldLines came;
  Handle other = b_->subscribe(key("n/*"), messages_to(came)).value();
  EXPECT_THAT(told.take(1), ElementsAre("+"));
  EXPECT_EQ(publisher->matching(), Matching::somebody);
  const std::uint64_t puts = zenoh_puts();
  EXPECT_TRUE(succeeds(publisher->put(storage("x"), storage("who"), "zenoh/bytes")));
  EXPECT_THAT(came.take(1), ElementsAre("n/1=x"));
  EXPECT_EQ(zenoh_puts(), puts + 1);
  other = nullptr;
  EXPECT_THAT(told.take(1), ElementsAre("-"));
  publisher = nullptr;
  settle(*a_);
  EXPECT_THAT(lines_.all(), IsEmpty());
}

TEST_F(ZenohSessions, PublishersHearOfSubscribersThatWereThereBeforeAndOfARouterThatDies) {
  const Handle subscriber = b_->subscribe(key("n/**"), messages_to(lines_)).value();
  settle(*b_);
  ToldLines told;
  const auto publisher =
      a_->publisher(key("n/*"), Audience::other_sessions, [&](Matching matching) {
          told.add(matching == Matching::somebody ? "+" : "-");
        }).value();
  EXPECT_THAT(told.take(1), ElementsAre("+"));
  router_.reset();
  EXPECT_THAT(told.take(1), ElementsAre("-"));
  start_router();
  EXPECT_THAT(told.take(1), ElementsAre("+"));
}

// Larger than a batch of Zenoh: it arrives in several pieces.
TEST_F(ZenohSessions, WhatIsPutKeepsItsBytesAndItsAttachment) {
  std::string payload(300'000, ' ');
  for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(i % 251);
  const Handle subscriber =
      b_->subscribe(key("x"), [&](const ZenohMessage& one) {
          lines_.add(text(one.payload) == payload ? "the same" : "another payload");
          lines_.add(text(one.attachment));
          lines_.add(one.payload.access() == Access::read_only ? "read only" : "writable");
        }).value();
  settle(*b_);
  // Zenoh may drop a piece on a busy machine, and with it the message.
  const tendon::Deadline deadline = kPatience;
  do EXPECT_TRUE(succeeds(a_->put(message("x", payload, "who put it"))));
  while (!lines_.come(3, std::chrono::seconds(1)) && !deadline.has_passed());
  EXPECT_THAT(lines_.take(3), ElementsAre("the same", "who put it", "read only"));
}

TEST_F(ZenohSessions, WhatIsPutKeepsItsEncodingAndADeleteIsOne) {
  const Handle subscriber =
      b_->subscribe(key("x"), [&](const ZenohMessage& one) {
          lines_.add((one.kind == ZenohKind::deleted ? "-" : "+") + one.encoding + " " +
                     text(one.payload) + text(one.attachment));
        }).value();
  settle(*b_);
  ZenohMessage json = message("x", "{}");
  json.encoding = "application/json;of=me";
  EXPECT_TRUE(succeeds(a_->put(json)));
  EXPECT_TRUE(succeeds(a_->put(message("x", "1"))));
  json.encoding = "of our own";
  EXPECT_TRUE(succeeds(a_->put(json)));
  ZenohMessage deleted = message("x", "", "who");
  deleted.kind = ZenohKind::deleted;
  EXPECT_TRUE(succeeds(a_->put(deleted)));
  EXPECT_THAT(lines_.take(4), ElementsAre("+application/json;of=me {}", "+zenoh/bytes 1",
                                          "+of our own {}", "-zenoh/bytes who"));
}

TEST_F(ZenohSessions, APublisherMayPutForItsOwnSessionToo) {
  ToldLines told;
  const auto publisher = a_->publisher(key("n/1"), Audience::all_sessions, [&](Matching matching) {
                             told.add(matching == Matching::somebody ? "+" : "-");
                           }).value();
  Handle own = a_->subscribe(key("n/*"), messages_to(lines_)).value();
  EXPECT_THAT(told.take(1), ElementsAre("+"));
  EXPECT_TRUE(succeeds(publisher->put(storage("x"), {}, "zenoh/bytes")));
  EXPECT_THAT(lines_.take(1), ElementsAre("n/1=x"));
  own = nullptr;
  EXPECT_THAT(told.take(1), ElementsAre("-"));
}

TEST_F(ZenohSessions, WhatIsPutIsNotCopiedInsideOfASession) {
  const Storage mine = storage("hello");
  const std::weak_ptr<const void> owner = mine.owner();
  ZenohMessage sent{"x", mine, {}};
  std::vector<Storage> got;
  Handle subscriber = a_->subscribe(key("x"), [&](const ZenohMessage& one) {
                          got.push_back(one.payload);
                          lines_.add("came");
                        }).value();
  EXPECT_TRUE(succeeds(a_->put(std::move(sent))));
  EXPECT_THAT(lines_.take(1), ElementsAre("came"));
  subscriber.reset();
  ASSERT_EQ(got.size(), 1U);
  EXPECT_EQ(got[0].data(), mine.data());
  EXPECT_GT(owner.use_count(), 1);  // the reader keeps it
  got.clear();
  EXPECT_TRUE(eventually([&] { return owner.use_count() == 1; }));
}

TEST_F(ZenohSessions, AQueryEndsWhenAllHaveAnswered) {
  std::unique_ptr<ZenohQuestion> kept;
  ToldLines asked;
  const Handle at_a = a_->answer(key("ask/*"), [](auto question) {
                          question->answer(message("ask/a", text(question->asked().payload) + "1"));
                          question->answer(message("ask/a", "2"));
                        }).value();
  const Handle at_c = c_->answer(key("ask/x"), [&](auto question) {
                          kept = std::move(question);
                          asked.add(kept->asked().key + " " + text(kept->asked().attachment));
                        }).value();
  settle(*a_);
  settle(*c_);
  const Handle query =
      b_->query(message("ask/x", "q", "from b"), kLong, messages_to(lines_), end_to(lines_))
          .value();
  EXPECT_THAT(lines_.take(2), ElementsAre("ask/a=q1", "ask/a=2"));
  EXPECT_THAT(asked.take(1), ElementsAre("ask/x from b"));
  kept->answer(message("ask/c", "3"));
  kept.reset();
  EXPECT_THAT(lines_.take(2), ElementsAre("ask/c=3", "end"));
}

TEST_F(ZenohSessions, AQueryEndsAtItsTimeout) {
  std::unique_ptr<ZenohQuestion> kept;
  const Handle at_a =
      a_->answer(key("ask"), [&](auto question) { kept = std::move(question); }).value();
  settle(*a_);
  const Handle query =
      b_->query(message("ask", ""), kBriefly, messages_to(lines_), end_to(lines_)).value();
  ToldLines ends;
  const Handle nobody =
      b_->query(message("none", ""), kLong, messages_to(ends), end_to(ends)).value();
  EXPECT_THAT(ends.take(1), ElementsAre("end"));
  EXPECT_THAT(lines_.take(1), ElementsAre("timeout"));
}

TEST_F(ZenohSessions, ASessionMayWithdrawAndAskInItsCallbacks) {
  // Asks for another token than the callback is about: Zenoh may not have that for questions by
  // then. The token is not of b_ either: Zenoh reports those twice.
  const Handle asked = a_->token(key("asked/1")).value();
  settle(*a_);
  Handle watch;
  Handle get;
  watch = b_->watch(key("n/*"), [&](TokenChange, std::string_view) {
              get = b_->get(key("asked/*"), kLong, keys_to(lines_), end_to(lines_)).value();
              watch.reset();
            }).value();
  const Handle one = b_->token(key("n/1")).value();
  EXPECT_THAT(lines_.take(2), ElementsAre("asked/1", "end"));
  const Handle two = b_->token(key("n/2")).value();
  settle(*b_);
  EXPECT_THAT(lines_.all(), IsEmpty());
}

TEST_F(ZenohSessions, WhatTheyReturnedMayOutliveThem) {
  const Handle token = a_->token(key("n/1")).value();
  const Handle watch = a_->watch(key("**"), tokens_to(lines_)).value();
  const Handle state = a_->on_state([](SessionState) {}).value();
  std::unique_ptr<ZenohQuestion> kept;
  ToldLines asked;
  const Handle answerer = a_->answer(key("ask"), [&](auto question) {
                              kept = std::move(question);
                              asked.add("");
                            }).value();
  settle(*a_);
  const Handle query =
      b_->query(message("ask", ""), kLong, messages_to(lines_), end_to(lines_)).value();
  EXPECT_THAT(asked.take(1), ElementsAre(""));
  a_.reset();
  kept->answer(message("ask", "late"));
  kept.reset();
}

TEST_F(ZenohSessions, ADeadRouterTakesAllTokensWhileAllLive) {
  ToldLines states;
  const Handle listener = b_->on_state([&](SessionState state) {
                              states.add(state == SessionState::up ? "up" : "down");
                            }).value();
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  settle(*b_);
  const Handle one = a_->token(key("n/a")).value();
  const Handle own = b_->token(key("n/b")).value();
  EXPECT_THAT(lines_.take(2), UnorderedElementsAre("+n/a", "+n/b"));
  EXPECT_EQ(b_->state(), SessionState::up);

  router_.reset();
  EXPECT_THAT(states.take(1), ElementsAre("down"));
  EXPECT_EQ(b_->state(), SessionState::down);
  EXPECT_THAT(lines_.take(1), ElementsAre("-n/a"));
  // A session that is down takes calls, and sends them when it is up.
  const Handle later = a_->token(key("n/later")).value();

  start_router();
  EXPECT_THAT(states.take(1), ElementsAre("up"));
  EXPECT_THAT(lines_.take(2), UnorderedElementsAre("+n/a", "+n/later"));
  EXPECT_THAT(lines_.all(), IsEmpty());
}

// The router continues, and knows nothing of it. Requests over the connection have no answer.
TEST_F(ZenohSessions, ALostConnectionIsNoAnswer) {
  ToldLines states;
  const Handle listener = b_->on_state([&](SessionState state) {
                              states.add(state == SessionState::up ? "up" : "down");
                            }).value();
  std::unique_ptr<ZenohQuestion> kept;
  ToldLines asked;
  const Handle answerer = c_->answer(key("ask"), [&](auto question) {
                              kept = std::move(question);
                              asked.add("");
                            }).value();
  settle(*c_);
  const Handle query =
      b_->query(message("ask", ""), kLong, messages_to(lines_), end_to(lines_)).value();
  EXPECT_THAT(asked.take(1), ElementsAre(""));
  cut_connections();
  EXPECT_THAT(states.take(2), ElementsAre("down", "up"));
  EXPECT_THAT(lines_.take(1), ElementsAre("timeout"));
}

TEST_F(ZenohSessions, ARouterTakesThePlaceOfOneThatHasGone) {
  EXPECT_TRUE(fails_with(open_zenoh({.mode = ZenohMode::router, .listen = {place_}}, kPatience),
                         ErrorCode::address_in_use, "star.zenoh"));
  const Handle watch = b_->watch(key("n/*"), tokens_to(lines_)).value();
  settle(*b_);
  const Handle one = a_->token(key("n/1")).value();
  EXPECT_THAT(lines_.take(1), ElementsAre("+n/1"));
  router_.reset();
  start_router();
  EXPECT_THAT(lines_.take(2), ElementsAre("-n/1", "+n/1"));
}

TEST_F(ZenohSessions, APeerNeedsNoRouter) {
  const std::string place = "unixsock-stream/" + (dir_.path() / "peer.zenoh").string();
  // It connects in the background.
  const Port early = open_zenoh({.mode = ZenohMode::peer, .connect = {place}}, kPatience).value();
  EXPECT_EQ(early->state(), SessionState::down);
  const Port there = open_zenoh({.mode = ZenohMode::peer, .listen = {place}}, kPatience).value();
  const Handle watch = early->watch(key("n/*"), tokens_to(lines_)).value();
  const Handle one = there->token(key("n/1")).value();
  EXPECT_THAT(lines_.take(1), ElementsAre("+n/1"));
  EXPECT_TRUE(becomes(*early, SessionState::up));
}

TEST_F(ZenohSessions, AClientThatReachesNobodySaysSo) {
  const std::string nowhere = "unixsock-stream/" + (dir_.path() / "nowhere").string();
  EXPECT_TRUE(
      fails_with(open_zenoh({.connect = {nowhere}}, kBriefly), ErrorCode::unreachable, "nowhere"));
  EXPECT_TRUE(fails_with(open_zenoh({.connect = {nowhere}}, tendon::Deadline::now()),
                         ErrorCode::unreachable, "nowhere"));
  EXPECT_TRUE(fails_with(open_zenoh({.connect = {"no endpoint"}}, kPatience),
                         ErrorCode::invalid_argument, "no endpoint"));
}

// A message above the limit is dropped while it arrives. The connection, and all declarations over
// it, stay.
TEST_F(ZenohSessions, AMessageAboveTheLimitCostsNeitherMemoryNorTheConnection) {
  constexpr std::uint64_t kMost = std::uint64_t{4} << 20;
  const Port small = open_zenoh({.connect = {place_}, .most_bytes = kMost}, kPatience).value();
  ToldLines states;
  const Handle listener = small
                              ->on_state([&](SessionState state) {
                                states.add(state == SessionState::up ? "up" : "down");
                              })
                              .value();
  const auto sizes = [](ToldLines& lines) {
    return [&lines](const ZenohMessage& one) {
      lines.add(one.key + " " + std::to_string(one.payload.size_bytes()));
    };
  };
  ToldLines all;
  const Handle there = small->subscribe(key("x/*"), sizes(lines_)).value();
  const Handle wide = b_->subscribe(key("x/*"), sizes(all)).value();
  settle(*small);
  settle(*b_);
  const auto put = [&](const std::string& on, std::uint64_t size_bytes) {
    EXPECT_TRUE(succeeds(a_->put_patiently(key(on), storage(std::string(size_bytes, 'x')))));
  };
  const std::uint64_t less = kMost - 1024;
  put("x/1", less);
  put("x/2", kMost + 1);
  put("x/3", 8 * kMost);
  put("x/4", 1);
  EXPECT_THAT(all.take(4),
              ElementsAre("x/1 " + std::to_string(less), "x/2 " + std::to_string(kMost + 1),
                          "x/3 " + std::to_string(8 * kMost), "x/4 1"))
      << "the router, and a session with room, take it";
  EXPECT_THAT(lines_.take(2), ElementsAre("x/1 " + std::to_string(less), "x/4 1"));
  EXPECT_THAT(states.all(), IsEmpty());
  EXPECT_THAT(found(*small, "n/*"), ElementsAre("end"));
}

// The limits of nodes and routers.
TEST_F(ZenohSessions, ARouterAndAQuietSessionHaveTheirLimits) {
  const Port quiet =
      open_zenoh({.connect = {place_}, .most_bytes = kMaxQuietZenohBytes}, kPatience).value();
  ToldLines all;
  const Handle there =
      quiet->subscribe(key("x/*"), [this](const ZenohMessage& one) { lines_.add(one.key); })
          .value();
  const Handle wide =
      b_->subscribe(key("x/*"), [&](const ZenohMessage& one) { all.add(one.key); }).value();
  settle(*quiet);
  settle(*b_);
  const auto put = [&](const std::string& on, std::uint64_t size_bytes) {
    EXPECT_TRUE(succeeds(a_->put_patiently(key(on), storage(std::string(size_bytes, 'x')))));
  };
  put("x/frame", tendon::kMaxCablePayloadBytes + 1024);  // cables need this
  put("x/more", kMaxQuietZenohBytes + 1);
  put("x/most", tendon::kMaxPlainBytes);
  put("x/huge", kMaxZenohBytes + 1);  // the router itself drops it
  put("x/end", 1);
  EXPECT_THAT(all.take(4), ElementsAre("x/frame", "x/more", "x/most", "x/end"));
  EXPECT_THAT(lines_.take(2), ElementsAre("x/frame", "x/end"));
}

TEST_F(ZenohSessions, TheEnvironmentHasTheLastWord) {
  const std::string nowhere = "unixsock-stream/" + (dir_.path() / "nowhere").string();
  setenv("ZENOH_CONFIG_OVERRIDE", ("mode=\"peer\";connect/endpoints=[\"" + place_ + "\"]").c_str(),
         1);
  const Port d = open_zenoh({.connect = {nowhere}}, kPatience).value();
  EXPECT_TRUE(becomes(*d, SessionState::up));
  setenv("ZENOH_CONFIG_OVERRIDE", "connect", 1);
  EXPECT_TRUE(fails_with(open_zenoh({.connect = {place_}}, kPatience), ErrorCode::invalid_argument,
                         "ZENOH_CONFIG_OVERRIDE"));
  setenv("ZENOH_CONFIG_OVERRIDE", "no/such/entry=1", 1);
  EXPECT_TRUE(fails_with(open_zenoh({.connect = {place_}}, kPatience), ErrorCode::invalid_argument,
                         "no/such/entry"));
  unsetenv("ZENOH_CONFIG_OVERRIDE");
}

TEST_F(ZenohSessions, AForkedChildTouchesNothing) {
  const Handle one = a_->token(key("n/1")).value();
  settle(*a_);
  EXPECT_THAT(found(*b_, "n/*"), ElementsAre("n/1", "end"));
  const int status = run_in_child([&] {
    if (!fails_with(a_->put(message("x", "")), ErrorCode::forked)) return 1;
    if (!fails_with(a_->token(key("n/2")), ErrorCode::forked)) return 2;
    if (a_->state() != SessionState::down) return 3;
    if (!fails_with(open_zenoh({.connect = {place_}}, kPatience), ErrorCode::forked, "by spawn"))
      return 4;
    a_.reset();
    return 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_THAT(found(*b_, "n/*"), ElementsAre("n/1", "end"));
}

// Objects of a program that ends are destroyed before the threads of Zenoh end.
class Gone {
 public:
  ~Gone() {
    alive_ = false;
    // Leaves time for late events.
    for (int i = 0; told_ && i < 10'000; ++i) std::this_thread::yield();
  }
  Gone() = default;
  Gone(const Gone&) = delete;
  Gone& operator=(const Gone&) = delete;
  void use() {
    told_ = true;
    if (!alive_) abort();
  }

 private:
  std::atomic<bool> alive_ = true;
  std::atomic<bool> told_ = false;
};
Gone used;

TEST_F(ZenohSessions, NothingIsToldWhileTheProcessExits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ToldLines lines;
        const Handle subscriber = b_->subscribe(key("x"), [&](const ZenohMessage&) {
                                      used.use();
                                      lines.add("");
                                    }).value();
        settle(*b_);
        std::thread flood([&] {
          for (;;) static_cast<void>(a_->put(message("x", "")));
        });
        static_cast<void>(lines.take(100));
        exit(0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ZenohSession, NamesItsEndpointsAsItIsTold) {
  if (!zenoh_version()) GTEST_SKIP() << "this build has no Zenoh";
  const auto nobody = open_zenoh({.connect = {"unixsock-stream//proc/self/fd/1/x.zenoh"},
                                  .connect_as = {"unixsock-stream//run/tendon/x.zenoh"}},
                                 tendon::Deadline::now());
  ASSERT_TRUE(fails_with(nobody, ErrorCode::unreachable, "//run/tendon/x.zenoh: "));
  EXPECT_THAT(nobody.error().detail, testing::Not(testing::HasSubstr("/proc/self")));
}

}  // namespace
