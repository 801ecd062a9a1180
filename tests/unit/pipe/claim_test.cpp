// SPDX-License-Identifier: Apache-2.0
// Over sockets a waiting recv_into is written to directly. However the call ends, the memory is the
// user's again afterwards, and nothing may be written there.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

// More than the kernel takes; two of them fit in the window.
constexpr std::uint64_t kSize = 30 << 20;
constexpr std::uint64_t kMine = 77;

/// Both ends move only in their own calls, so that a message stops halfway. The part that the
/// kernel takes is sent at once, the rest in a later call of the sender.
class Claims : public testing::Test {
 protected:
  Claims() {
    ContextOptions options;
    options.transport = Transport::tcp;
    options.progress = Progress::manual;
    options.name = "sender";
    sending_.emplace(Context::create(options).value());
    options.name = "receiver";
    receiving_.emplace(Context::create(options).value());
    listener_.emplace(Listener::bind(*receiving_, "127.0.0.1:0").value());
    connect(from_, to_);
    connect(other_from_, other_to_);
    // The schema is sent first, because nothing could be claimed without it.
    std::thread receiver([&] { EXPECT_TRUE(succeeds(to_->recv_into(into_, kPatience))); });
    EXPECT_TRUE(succeeds(from_->send(patterned(9, kSize), kPatience)));
    receiver.join();
    std::ranges::fill(into_["x"].mutable_bytes(), std::byte{0});
  }
  void connect(std::optional<Pipe>& from, std::optional<Pipe>& to) {
    std::thread accepting([&] { to.emplace(listener_->accept(kPatience).value()); });
    from.emplace(Pipe::connect(*sending_, listener_->address(), kPatience).value());
    accepting.join();
  }

  /// Another thread writes this byte meanwhile. Any value except the first will do, so the race is
  /// intended.
  [[nodiscard]] [[gnu::no_sanitize("thread")]] bool begun() {
    const auto* first = reinterpret_cast<const volatile std::byte*>(into_["x"].bytes().data());
    return *first != std::byte{0};
  }
  /// Called after the call is over. Uses the memory for something else, lets all sent bytes arrive,
  /// and checks the memory. On the single bulk connection, the rest of a frame precedes the next
  /// message.
  void expect_that_nothing_is_written() {
    fill_pattern(into_["x"].mutable_bytes(), kMine);
    std::thread sender(
        [&] { EXPECT_TRUE(succeeds(other_from_->send(patterned(5, 3 << 20), kPatience))); });
    EXPECT_TRUE(succeeds(other_to_->recv(kPatience)));
    sender.join();
    EXPECT_TRUE(is_patterned(into_, kMine, kSize));
  }

  std::optional<Context> sending_, receiving_;
  std::optional<Listener> listener_;
  std::optional<Pipe> from_, to_, other_from_, other_to_;
  TensorDict into_ = patterned(0, kSize);
};

TEST_F(Claims, EndWhenThePeerCancels) {
  auto sent = from_->send_async(patterned(1, kSize));
  ASSERT_FALSE(sent.done());
  std::thread receiver([&] {
    EXPECT_TRUE(fails_with(to_->recv_into(into_, kPatience), ErrorCode::cancelled, "sender"));
  });
  ASSERT_TRUE(eventually([&] { return begun(); }));
  from_->cancel();
  receiver.join();
  expect_that_nothing_is_written();
}

TEST_F(Claims, OfAnAsynchronousReceiveEndWhenThePeerCancels) {
  auto sent = from_->send_async(patterned(1, kSize));
  ASSERT_FALSE(sent.done());
  auto received = to_->recv_into_async(into_);
  ASSERT_TRUE(eventually([&] { return begun(); }, [&] { receiving_->progress(); }));
  from_->cancel();
  EXPECT_TRUE(fails_with(received.wait(kPatience), ErrorCode::cancelled, "sender"));
  expect_that_nothing_is_written();
}

TEST_F(Claims, EndWhenThisEndIsDropped) {
  auto sent = from_->send_async(patterned(1, kSize));
  ASSERT_FALSE(sent.done());
  auto received = to_->recv_into_async(into_);
  ASSERT_TRUE(eventually([&] { return begun(); }, [&] { receiving_->progress(); }));
  to_.reset();
  EXPECT_TRUE(fails_with(received.wait(kPatience), ErrorCode::pipe_closed));
  from_->cancel();
  expect_that_nothing_is_written();
}

TEST_F(Claims, OfACancelledReceiveStayAndAreSaidToStay) {
  auto sent = from_->send_async(patterned(1, kSize));
  ASSERT_FALSE(sent.done());
  auto received = to_->recv_into_async(into_);
  ASSERT_TRUE(eventually([&] { return begun(); }, [&] { receiving_->progress(); }));
  received.cancel();
  EXPECT_EQ(received.state(), CompletionStatus::failed_owning);
  EXPECT_TRUE(fails_with(received.wait(kPatience), ErrorCode::cancelled, "in use"));
  // The message is not lost: the next receive returns it.
  std::thread sender([&] { EXPECT_TRUE(succeeds(sent.wait(kPatience))); });
  const auto next = to_->recv(kPatience);
  sender.join();
  ASSERT_TRUE(succeeds(next));
  EXPECT_TRUE(is_patterned(*next, 1, kSize));
}

TEST_F(Claims, AnotherReceiveMayTakeWhatLiesInADestination) {
  auto sent = from_->send_async(patterned(1, kSize));
  ASSERT_FALSE(sent.done());
  std::thread receiver([&] { EXPECT_TRUE(succeeds(to_->recv_into(into_, kPatience))); });
  ASSERT_TRUE(eventually([&] { return begun(); }));
  auto other = to_->recv_async();  // posted receives are served first
  EXPECT_TRUE(succeeds(sent.wait(kPatience)));
  const auto taken = other.wait(kPatience);
  EXPECT_TRUE(succeeds(from_->send(patterned(2, kSize), kPatience)));
  receiver.join();
  ASSERT_TRUE(succeeds(taken));
  EXPECT_TRUE(is_patterned(*taken, 1, kSize)) << "not what was sent";
  EXPECT_TRUE(is_patterned(into_, 2, kSize));
}

}  // namespace
}  // namespace tendon::test
