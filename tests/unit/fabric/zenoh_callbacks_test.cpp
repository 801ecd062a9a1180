// SPDX-License-Identifier: Apache-2.0
// Callbacks of Zenoh sessions run on one thread, and not after they were withdrawn.
#include "fabric/zenoh/zenoh_callbacks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/told_lines.hpp"

namespace {

using namespace tendon::detail;
using tendon::Storage;
using tendon::test::ToldLines;
using testing::ElementsAre;
using testing::IsEmpty;
using Event = ZenohCallbacks::Event;

Event token(const std::string& key) { return ZenohCallbacks::Token{TokenChange::came, key}; }
std::string key_of(const Event& event) { return std::get<ZenohCallbacks::Token>(event).key; }

class ZenohCallbackThread : public testing::Test {
 protected:
  ZenohCallbackThread() : callbacks_(ZenohCallbacks::start().value()) {}
  ~ZenohCallbackThread() override { callbacks_->close(); }

  ZenohCallbacks::Callback keys_to(ToldLines& lines) {
    return [&lines](Event event) { lines.add(key_of(event)); };
  }
  // Waits until all earlier posts have been delivered.
  void drain() {
    ToldLines end;
    const auto number = callbacks_->add(keys_to(end));
    callbacks_->post(number, token("end"));
    EXPECT_THAT(end.take(1), ElementsAre("end"));
    callbacks_->remove(number);
  }

  std::shared_ptr<ZenohCallbacks> callbacks_;
  ToldLines lines_;
};

TEST_F(ZenohCallbackThread, TellsInOrderAndOneAtATime) {
  std::atomic<int> running = 0;
  std::atomic<int> most = 0;
  const auto count = [&](Event event) {
    most = std::max(most.load(), ++running);
    lines_.add(key_of(event));
    --running;
  };
  const auto one = callbacks_->add(count);
  const auto two = callbacks_->add(count);
  std::vector<std::string> expected;
  for (int i = 0; i < 1000; ++i) {
    callbacks_->post(i % 2 == 0 ? one : two, token(std::to_string(i)));
    expected.push_back(std::to_string(i));
  }
  EXPECT_EQ(lines_.take(1000), expected);
  drain();  // The last callback has returned.
  EXPECT_EQ(most, 1);
}

TEST_F(ZenohCallbackThread, NothingIsToldAfterItWasRemoved) {
  const auto number = callbacks_->add(keys_to(lines_));
  const auto blocker = callbacks_->add([&](Event) { callbacks_->remove(number); });
  callbacks_->post(blocker, token(""));
  callbacks_->post(number, token("late"));
  drain();
  EXPECT_THAT(lines_.all(), IsEmpty());
}

TEST_F(ZenohCallbackThread, RemoveWaitsForTheCallback) {
  ToldLines order;
  ToldLines go;
  const auto kept = std::make_shared<int>();
  const auto number = callbacks_->add([&, kept](Event) {
    order.add("began");
    static_cast<void>(go.take(1));
    order.add("ends");
  });
  callbacks_->post(number, token(""));
  EXPECT_THAT(order.take(1), ElementsAre("began"));
  std::thread remover([&] {
    go.add("");
    callbacks_->remove(number);
    // Nothing of the callback is left, including its own memory.
    order.add("removed, " + std::to_string(kept.use_count()));
  });
  remover.join();
  EXPECT_THAT(order.take(2), ElementsAre("ends", "removed, 1"));
}

TEST_F(ZenohCallbackThread, ACallbackMayRemoveItself) {
  ZenohCallbacks::Number number = 0;
  number = callbacks_->add([&](Event event) {
    lines_.add(key_of(event));
    callbacks_->remove(number);
  });
  callbacks_->post(number, token("first"));
  callbacks_->post(number, token("second"));
  drain();
  EXPECT_THAT(lines_.all(), ElementsAre("first"));
}

TEST_F(ZenohCallbackThread, ACallbackMayCloseThem) {
  const auto number = callbacks_->add([&](Event) {
    callbacks_->close();
    lines_.add("closed");
  });
  callbacks_->post(number, token(""));
  EXPECT_THAT(lines_.take(1), ElementsAre("closed"));
}

TEST_F(ZenohCallbackThread, ChangesOfTheStateAreToldOnce) {
  const auto number = callbacks_->add_listener([&](Event event) {
    lines_.add(std::get<SessionState>(event) == SessionState::up ? "up" : "down");
  });
  static_cast<void>(number);
  EXPECT_EQ(callbacks_->state(), SessionState::down);
  callbacks_->set_state(SessionState::down);
  callbacks_->set_state(SessionState::up);
  EXPECT_EQ(callbacks_->state(), SessionState::up);
  callbacks_->set_state(SessionState::up);
  callbacks_->set_state(SessionState::down);
  EXPECT_THAT(lines_.take(2), ElementsAre("up", "down"));
}

// A question that nobody takes. Returning it calls Zenoh, which may call back at once.
class Counted final : public ZenohQuestion {
 public:
  Counted(ZenohCallbacks& callbacks, ZenohCallbacks::Number number)
      : callbacks_(callbacks), number_(number) {}
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  ~Counted() override { callbacks_.post(number_, token("given back")); }
  [[nodiscard]] const ZenohMessage& asked() const noexcept override { return asked_; }
  void answer(ZenohMessage /*message*/) override {}

 private:
  ZenohCallbacks& callbacks_;
  const ZenohCallbacks::Number number_;
  const ZenohMessage asked_;
};

TEST_F(ZenohCallbackThread, AQuestionThatNobodyTakesIsGivenBack) {
  const auto number = callbacks_->add(keys_to(lines_));
  callbacks_->post(number + 1, std::make_unique<Counted>(*callbacks_, number));
  EXPECT_THAT(lines_.take(1), ElementsAre("given back"));
  // The recipient of this question is removed while it is queued.
  ZenohCallbacks::Number recipient = 0;
  const auto remover = callbacks_->add([&](Event) { callbacks_->remove(recipient); });
  recipient = callbacks_->add([](Event) {});
  callbacks_->post(remover, token(""));
  callbacks_->post(recipient, std::make_unique<Counted>(*callbacks_, number));
  EXPECT_THAT(lines_.take(1), ElementsAre("given back"));
}

TEST_F(ZenohCallbackThread, WhatIsQueuedHasALimit) {
  ToldLines go;
  const auto blocker = callbacks_->add([&](Event) {
    lines_.add("blocks");
    static_cast<void>(go.take(1));
  });
  const auto request = callbacks_->add([&](Event event) {
    const auto* const ending = std::get_if<Ending>(&event);
    if (std::holds_alternative<ZenohCallbacks::Missed>(event)) return lines_.add("missed");
    lines_.add(ending == nullptr ? "message" : *ending == Ending::complete ? "end" : "timeout");
  });
  callbacks_->post(blocker, token(""));
  EXPECT_THAT(lines_.take(1), ElementsAre("blocks"));
  const Storage half = Storage::allocate(ZenohEventQueue::kMaxQueuedBytes / 2).value();
  for (int i = 0; i < 3; ++i) callbacks_->post(request, ZenohMessage{"k", half, {}});
  callbacks_->post(request, Ending::complete);
  EXPECT_EQ(callbacks_->dropped(), 2U);  // a message also has a key and a place
  go.add("");
  EXPECT_THAT(lines_.take(3), ElementsAre("message", "missed", "timeout"));
}

// Reported in one event, together with those that found no room here.
TEST_F(ZenohCallbackThread, TellsOfWhatWasMissedBeforeItCameHere) {
  ToldLines go;
  const auto blocker = callbacks_->add([&](Event) {
    lines_.add("blocks");
    static_cast<void>(go.take(1));
  });
  const auto subscriber = callbacks_->add([&](const Event& event) {
    for (const auto& [key, count] : std::get<ZenohCallbacks::Missed>(event).messages)
      lines_.add("missed " + key + " " + std::to_string(count));
  });
  callbacks_->post(blocker, token(""));
  EXPECT_THAT(lines_.take(1), ElementsAre("blocks"));
  callbacks_->post_missed(subscriber, "a", 2);
  callbacks_->post(
      subscriber,
      ZenohMessage{"a", Storage::allocate(ZenohEventQueue::kMaxQueuedBytes).value(), {}});
  callbacks_->post_missed(subscriber, "b", 5);
  go.add("");
  EXPECT_THAT(lines_.take(2), ElementsAre("missed a 3", "missed b 5"));
  callbacks_->post_missed(subscriber, "a", 1);
  EXPECT_THAT(lines_.take(1), ElementsAre("missed a 1"));
}

// There is always a place for the event that something is missed, and each loss is reported once.
TEST_F(ZenohCallbackThread, WhoMissedMessagesIsToldOfEachKey) {
  ToldLines go;
  const auto blocker = callbacks_->add([&](Event) {
    lines_.add("blocks");
    static_cast<void>(go.take(1));
  });
  const auto subscriber = callbacks_->add([&](const Event& event) {
    const auto* const missed = std::get_if<ZenohCallbacks::Missed>(&event);
    if (missed == nullptr) return lines_.add("message");
    for (const auto& [key, count] : missed->messages)
      lines_.add("missed " + key + " " + std::to_string(count));
  });
  callbacks_->post(blocker, token(""));
  EXPECT_THAT(lines_.take(1), ElementsAre("blocks"));
  const Storage most = Storage::allocate(ZenohEventQueue::kMaxQueuedBytes - 1000).value();
  callbacks_->post(subscriber, ZenohMessage{"a", most, {}});
  const Storage more = Storage::allocate(1000).value();
  for (int i = 0; i < 3; ++i) callbacks_->post(subscriber, ZenohMessage{"a", more, {}});
  callbacks_->post(subscriber, ZenohMessage{"b", more, {}});
  go.add("");
  EXPECT_THAT(lines_.take(3), ElementsAre("message", "missed a 3", "missed b 1"));
  // There is room again, and the next flood is another one.
  callbacks_->post(blocker, token(""));
  EXPECT_THAT(lines_.take(1), ElementsAre("blocks"));
  callbacks_->post(subscriber, ZenohMessage{"a", most, {}});
  for (std::size_t n = 0; n <= ZenohMissed::kMostMissedKeys; ++n)
    callbacks_->post(subscriber, ZenohMessage{"k" + std::to_string(n), more, {}});
  go.add("");
  EXPECT_THAT(lines_.take(1), ElementsAre("message"));
  const auto told = lines_.take(ZenohMissed::kMostMissedKeys + 1);
  EXPECT_EQ(told.size(), ZenohMissed::kMostMissedKeys + 1);
  EXPECT_EQ(told.front(), "missed  1") << "the key beyond those that are named";
}

TEST_F(ZenohCallbackThread, TokensHaveALimitOfTheirOwn) {
  ToldLines go;
  const auto blocker = callbacks_->add([&](Event) {
    lines_.add("blocks");
    static_cast<void>(go.take(1));
  });
  std::atomic<std::uint64_t> tokens = 0;
  std::atomic<std::uint64_t> missed = 0;
  const auto watch = callbacks_->add([&](const Event& event) {
    ++(std::holds_alternative<ZenohCallbacks::Missed>(event) ? missed : tokens);
  });
  const auto request = callbacks_->add([&](const Event& event) {
    if (const auto* const ending = std::get_if<Ending>(&event))
      lines_.add(*ending == Ending::complete ? "end" : "timeout");
  });
  callbacks_->post(blocker, token(""));
  EXPECT_THAT(lines_.take(1), ElementsAre("blocks"));
  const std::string key(768, 'k');
  constexpr std::uint64_t kEach = 1024;  // includes its place
  for (std::uint64_t n = 0; n < ZenohEventQueue::kMaxQueuedTokenBytes / kEach; ++n)
    callbacks_->post(watch, token(key));
  EXPECT_EQ(callbacks_->dropped(), 0U);
  for (int i = 0; i < 3; ++i) callbacks_->post(watch, token(key));
  callbacks_->post(request, token(key));
  callbacks_->post(request, Ending::complete);
  EXPECT_EQ(callbacks_->dropped(), 4U);
  go.add("");
  EXPECT_THAT(lines_.take(1), ElementsAre("timeout")) << "it was not told all";
  EXPECT_EQ(tokens, ZenohEventQueue::kMaxQueuedTokenBytes / kEach);
  EXPECT_EQ(missed, 1U);
}

}  // namespace
