// SPDX-License-Identifier: Apache-2.0
#include "runtime/event_loop.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "support/expect.hpp"

namespace tendon::detail {
namespace {

class Handler final : public FdHandler {
 public:
  explicit Handler(std::function<void()> then = [] {}) : then_(std::move(then)) {}
  void on_ready(int, std::uint32_t) override {
    ++count_;
    then_();
  }
  [[nodiscard]] int count() const { return count_; }

 private:
  std::function<void()> then_;
  int count_ = 0;
};

class EventLoops : public testing::Test {
 protected:
  EventLoops() {
    EXPECT_TRUE(test::succeeds(loop_.open()));
    EXPECT_TRUE(ready_);
  }
  EventLoop loop_;
  const OwnedFd ready_{eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK)};
};

TEST_F(EventLoops, TellsARingFromAnEvent) {
  EXPECT_FALSE(loop_.dispatch(0).any);
  loop_.ring();
  loop_.ring();
  const EventLoop::Events rung = loop_.dispatch(-1);
  EXPECT_TRUE(rung.any && rung.rung);
  EXPECT_FALSE(loop_.dispatch(0).any);

  const auto handler = std::make_shared<Handler>();
  ASSERT_TRUE(test::succeeds(loop_.watch(ready_.get(), EPOLLIN, handler)));
  const EventLoop::Events came = loop_.dispatch(-1);
  EXPECT_TRUE(came.any && !came.rung);
  EXPECT_EQ(handler->count(), 1);
}

TEST_F(EventLoops, CallsNobodyForWhatIsForgottenOrNotWanted) {
  const auto handler = std::make_shared<Handler>();
  ASSERT_TRUE(test::succeeds(loop_.watch(ready_.get(), EPOLLIN, handler)));
  loop_.change(ready_.get(), 0);
  EXPECT_FALSE(loop_.dispatch(0).any);
  loop_.change(ready_.get(), EPOLLIN);
  EXPECT_TRUE(loop_.dispatch(0).any);
  loop_.forget(ready_.get());
  EXPECT_FALSE(loop_.dispatch(0).any);
  EXPECT_EQ(handler->count(), 1);
  loop_.forget(ready_.get());
  loop_.change(ready_.get(), EPOLLIN);
}

TEST_F(EventLoops, ForgetsADescriptorWhoseHandlerHasGone) {
  ASSERT_TRUE(test::succeeds(loop_.watch(ready_.get(), EPOLLIN, std::make_shared<Handler>())));
  EXPECT_TRUE(loop_.dispatch(0).any);
  EXPECT_FALSE(loop_.dispatch(0).any);
}

// One call of the kernel returned both events; another file takes the number meanwhile.
TEST_F(EventLoops, AnEventOfAForgottenDescriptorReachesNoOther) {
  OwnedFd first{eventfd(1, EFD_CLOEXEC)};
  OwnedFd second{eventfd(1, EFD_CLOEXEC)};
  std::shared_ptr<Handler> one;
  std::shared_ptr<Handler> other;
  one = std::make_shared<Handler>([&] { loop_.forget(second.get()); });
  other = std::make_shared<Handler>([&] { loop_.forget(first.get()); });
  ASSERT_TRUE(test::succeeds(loop_.watch(first.get(), EPOLLIN, one)));
  ASSERT_TRUE(test::succeeds(loop_.watch(second.get(), EPOLLIN, other)));
  loop_.dispatch(-1);
  EXPECT_EQ(one->count() + other->count(), 1);
}

using std::chrono::microseconds;

/// Handshakes that arrive at once, in an engine whose clock only they advance.
class Turns : public testing::Test {
 protected:
  static TurnQueue::Time now() { return now_; }
  Turns() {
    now_ = {};
    EXPECT_TRUE(test::succeeds(loop_.open()));
  }
  /// Each handler takes `each`, and reads its event.
  void arrive(std::size_t count, microseconds each) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t number = ready_.size();
      ready_.emplace_back(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
      handlers_.push_back(std::make_shared<Handler>([this, number, each] {
        now_ += each;
        served_.push_back(number);
        eventfd_t all = 0;
        eventfd_read(ready_[number].get(), &all);
      }));
      ASSERT_TRUE(test::succeeds(
          loop_.watch_in_turns(ready_.back().get(), EPOLLIN | EPOLLRDHUP, handlers_.back())));
    }
  }
  [[nodiscard]] std::vector<std::size_t> served_in_a_turn() {
    served_.clear();
    loop_.dispatch(0);
    return served_;
  }

  static TurnQueue::Time now_;
  EventLoop loop_{&Turns::now};
  std::vector<OwnedFd> ready_;
  std::vector<std::shared_ptr<Handler>> handlers_;
  std::vector<std::size_t> served_;
};
TurnQueue::Time Turns::now_{};

using Numbers = std::vector<std::size_t>;

TEST_F(Turns, HaveTwoMillisecondsAndTheRestGoesFirstInTheNext) {
  arrive(5, microseconds(700));
  EXPECT_EQ(served_in_a_turn(), (Numbers{0, 1}));
  EXPECT_LE(now_.time_since_epoch(), TurnQueue::kMostTime);
  // A thread that tries to sleep there wakes at once.
  pollfd sleeper{loop_.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&sleeper, 1, 0), 1);
  arrive(1, microseconds(700));
  EXPECT_EQ(served_in_a_turn(), (Numbers{2, 3}));
  EXPECT_EQ(served_in_a_turn(), (Numbers{4, 5}));
  EXPECT_EQ(served_in_a_turn(), Numbers{});
  EXPECT_FALSE(loop_.dispatch(0).any);
}

TEST_F(Turns, HaveOneThatTakesLonger) {
  arrive(3, microseconds(5000));
  for (const std::size_t number : {0u, 1u, 2u}) EXPECT_EQ(served_in_a_turn(), Numbers{number});
}

TEST_F(Turns, OfWhatIsCheapHaveAllOfIt) {
  arrive(30, microseconds(1));
  EXPECT_EQ(served_in_a_turn().size(), 30u);
}

// There are more of them than one call of the kernel returns.
TEST_F(Turns, KeepNoLinkWaiting) {
  arrive(100, microseconds(1900));
  (void)served_in_a_turn();
  (void)served_in_a_turn();
  const OwnedFd link{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::size_t before_it = 0;
  const auto links = std::make_shared<Handler>([&] {
    before_it = served_.size();
    loop_.change(link.get(), 0);
  });
  ASSERT_TRUE(test::succeeds(loop_.watch(link.get(), EPOLLIN, links)));
  for (int turn = 0; turn < 3; ++turn) (void)served_in_a_turn();
  eventfd_write(link.get(), 1);
  EXPECT_EQ(served_in_a_turn().size(), 1u);
  EXPECT_EQ(links->count(), 1);
  EXPECT_EQ(before_it, 0u);
}

TEST_F(Turns, AreCalledForWithoutAnEventToo) {
  arrive(1, microseconds(1));
  EXPECT_EQ(served_in_a_turn(), Numbers{0});
  loop_.call_in_turn(ready_[0].get());
  EXPECT_EQ(served_in_a_turn(), Numbers{0});
  loop_.forget(ready_[0].get());
  loop_.call_in_turn(ready_[0].get());
  EXPECT_EQ(served_in_a_turn(), Numbers{});
}

TEST_F(Turns, AreNotOfThoseThatWereForgotten) {
  arrive(4, microseconds(1500));
  EXPECT_EQ(served_in_a_turn(), Numbers{0});
  loop_.forget(ready_[1].get());
  EXPECT_EQ(served_in_a_turn(), Numbers{2});
  EXPECT_EQ(served_in_a_turn(), Numbers{3});
}

TEST_F(EventLoops, WhatCannotBeWatchedIsAnError) {
  EXPECT_TRUE(test::fails_with(loop_.watch(-1, EPOLLIN, std::make_shared<Handler>()),
                               ErrorCode::system, "epoll_ctl"));
}

}  // namespace
}  // namespace tendon::detail
