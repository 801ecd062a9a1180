// SPDX-License-Identifier: Apache-2.0
#include "runtime/event_loop.hpp"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <functional>
#include <memory>

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

// Both came with one call of the kernel; the number is given to another file meanwhile.
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

TEST_F(EventLoops, WhatCannotBeWatchedIsAnError) {
  EXPECT_TRUE(test::fails_with(loop_.watch(-1, EPOLLIN, std::make_shared<Handler>()),
                               ErrorCode::system, "epoll_ctl"));
}

}  // namespace
}  // namespace tendon::detail
