// SPDX-License-Identifier: Apache-2.0
// Other ways to receive than recv(): completions, and a function in a thread of the subscriber.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tendon/fabric/node.hpp>
#include <thread>
#include <vector>

#include "support/batches.hpp"
#include "support/child.hpp"
#include "unit/fabric/nodes.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;

class Receiving : public NodesTest {
 protected:
  void SetUp() override {
    vision_ = &start("vision");
    motor_ = &start("motor");
    publisher_ = Publisher::declare(vision_->node, "count", {.qos = {keep_last(64)}}).value();
  }
  [[nodiscard]] Subscriber declare(const SubscriberOptions& options = {}) {
    Subscriber subscriber = Subscriber::declare(motor_->node, "count", options).value();
    EXPECT_TRUE(succeeds(publisher_->wait_for_subscribers(1, kPatience)));
    return subscriber;
  }
  void publish(std::int64_t first, std::int64_t last) {
    for (std::int64_t n = first; n <= last; ++n)
      EXPECT_TRUE(succeeds(publisher_->publish(numbered(n))));
  }

  Program* vision_ = nullptr;
  Program* motor_ = nullptr;
  std::optional<Publisher> publisher_;
};
TENDON_ON_BOTH_PATHS(Receiving);

TEST_P(Receiving, ASampleThatIsGivenBackIsTheNextOne) {
  Subscriber subscriber = declare();
  publish(1, 3);
  Sample first = subscriber.recv(kPatience).value();
  subscriber.give_back(first);
  EXPECT_EQ(number_of(*subscriber.recv(kPatience).value().tensors), 1);
  // Returns two, which are received again in the order of their return.
  Sample second = subscriber.recv(kPatience).value();
  subscriber.give_back(std::move(first));
  subscriber.give_back(std::move(second));
  EXPECT_EQ(number_of(*subscriber.recv_async().wait(kPatience).value().tensors), 1);
  for (std::int64_t n = 2; n <= 3; ++n)
    EXPECT_EQ(number_of(*subscriber.recv(kPatience).value().tensors), n);
}

TEST_P(Receiving, ACompletionHasTheNextSample) {
  Subscriber subscriber = declare();
  auto early = subscriber.recv_async();
  EXPECT_FALSE(early.done());
  EXPECT_TRUE(fails_with(early.wait(0s), ErrorCode::timeout, "pending"));
  publish(1, 2);
  EXPECT_EQ(number_of(*early.wait(kPatience).value().tensors), 1);
  auto late = subscriber.recv_async();
  EXPECT_TRUE(eventually([&] { return late.done(); })) << "no thread waits for it";
  EXPECT_EQ(number_of(*late.wait(0s).value().tensors), 2);
}

TEST_P(Receiving, OneReceivesAtATime) {
  Subscriber subscriber = declare();
  auto waiting = subscriber.recv_async();
  EXPECT_TRUE(fails_with(subscriber.recv(kPatience), ErrorCode::busy, "count"));
  EXPECT_TRUE(fails_with(subscriber.recv_async().wait(kPatience), ErrorCode::busy, "count"));
  waiting.cancel();
  EXPECT_TRUE(fails_with(waiting.wait(0s), ErrorCode::cancelled));
  publish(1, 1);
  EXPECT_EQ(receive(subscriber).sequence, 1u);
}

TEST_P(Receiving, ADroppedCompletionGivesItsSampleBack) {
  Subscriber subscriber = declare();
  { const auto dropped = subscriber.recv_async(); }
  publish(1, 3);
  {
    auto first = subscriber.recv_async();
    auto second = [&] {
      EXPECT_TRUE(eventually([&] { return first.done(); }));
      return subscriber.recv_async();
    }();
    EXPECT_TRUE(eventually([&] { return second.done(); }));
  }  // the second one is dropped first
  for (std::uint64_t n = 1; n <= 3; ++n) EXPECT_EQ(receive(subscriber).sequence, n);
  auto third = subscriber.recv_async();
  publish(4, 4);
  ASSERT_TRUE(eventually([&] { return third.done(); }));
  std::move(third).give_back();
  EXPECT_EQ(subscriber.recv_async().wait(kPatience).value().sequence, 4u);
}

TEST_P(Receiving, AFunctionHearsOfACompletion) {
  Subscriber subscriber = declare();
  std::vector<std::uint64_t> sequences;
  std::atomic<bool> over{false};
  std::optional<Completion<Sample>> waiting;  // dropping it would end it
  std::function<void(Result<Sample>)> next = [&](Result<Sample> sample) {
    ASSERT_TRUE(succeeds(sample));
    sequences.push_back(sample->sequence);
    if (sequences.size() == 20) {
      over = true;
    } else {
      waiting = subscriber.recv_async();
      waiting->on_done(next);
    }
  };
  waiting = subscriber.recv_async();
  waiting->on_done(next);
  publish(1, 20);
  ASSERT_TRUE(eventually([&] { return over.load(); }));
  for (std::size_t i = 0; i < sequences.size(); ++i) EXPECT_EQ(sequences[i], i + 1);
}

TEST_P(Receiving, ACompletionEndsWithItsSubscriberAndItsContext) {
  Subscriber subscriber = declare();
  auto closed = subscriber.recv_async();
  subscriber.close();
  EXPECT_TRUE(fails_with(closed.wait(0s), ErrorCode::pipe_closed, "count"));
  EXPECT_TRUE(fails_with(subscriber.recv_async().wait(0s), ErrorCode::pipe_closed));
  Subscriber other = declare();
  auto of_context = other.recv_async();
  ASSERT_TRUE(succeeds(motor_->context.close(kPatience)));
  EXPECT_TRUE(fails_with(of_context.wait(0s), ErrorCode::context_closed));
}

TEST_P(Receiving, AFunctionIsCalledInAThreadOfTheSubscriber) {
  struct {
    std::mutex mutex;
    std::vector<std::uint64_t> sequences;
    std::optional<std::thread::id> thread;
  } seen;
  const auto count = [&] {
    const std::lock_guard lock(seen.mutex);
    return seen.sequences.size();
  };
  std::optional<Subscriber> subscriber = declare({.on_sample = [&](const Sample& sample) {
    {
      const std::lock_guard lock(seen.mutex);
      seen.sequences.push_back(sample.sequence);
      if (!seen.thread) seen.thread = std::this_thread::get_id();
      EXPECT_EQ(*seen.thread, std::this_thread::get_id());
    }
    if (sample.sequence == 2) throw std::runtime_error("the next sample follows all the same");
  }});
  EXPECT_TRUE(fails_with(subscriber->recv(0s), ErrorCode::busy));
  EXPECT_TRUE(fails_with(subscriber->recv_async().wait(0s), ErrorCode::busy));
  publish(1, 3);
  ASSERT_TRUE(eventually([&] { return count() == 3; }));
  subscriber.reset();
  publish(4, 6);
  EXPECT_THAT(seen.sequences, ElementsAre(1, 2, 3)) << "nothing runs after the destructor";
  EXPECT_NE(*seen.thread, std::this_thread::get_id());
}

TEST_P(Receiving, AFunctionMayCloseItsSubscriber) {
  std::optional<Subscriber> subscriber;
  std::atomic<int> calls{0};
  std::atomic<bool> ready{false};
  subscriber = declare({.on_sample = [&](const Sample&) {
    while (!ready) std::this_thread::yield();
    subscriber->close();
    ++calls;
  }});
  ready = true;
  publish(1, 3);
  ASSERT_TRUE(eventually([&] { return calls == 1; }));
  ASSERT_TRUE(eventually([&] { return publisher_->stats().subscribers == 0; }));
  EXPECT_EQ(calls, 1);
}

TEST_P(Receiving, InAForkedChildNothingHangs) {
  std::optional<Subscriber> called = declare({.on_sample = [](const Sample&) {}});
  std::optional<Subscriber> posted = Subscriber::declare(motor_->node, "other").value();
  std::optional<Completion<Sample>> waiting = posted->recv_async();
  const int status = run_in_child([&] {
    if (!fails_with(posted->recv_async().wait(kPatience), ErrorCode::forked)) return 1;
    waiting.reset();
    posted.reset();
    called.reset();
    return 0;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

}  // namespace
}  // namespace tendon::test
