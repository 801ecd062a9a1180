// SPDX-License-Identifier: Apache-2.0
// What becomes of the streams of a subscriber while links are lost beside it.
#include "fabric/streams.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

#include "runtime/context_core.hpp"
#include "support/expect.hpp"
#include "support/peerless_link.hpp"
#include "support/sleeping_thread.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;
using detail::ContextCore;
using detail::Death;
using detail::Feed;
using detail::Streams;
using detail::Window;

constexpr std::uint32_t kPipe = 9;

class StreamsOverTwoLinks : public testing::Test {
 protected:
  /// A stream of its own on this link.
  void add(const std::shared_ptr<PeerlessLink>& link, std::uint32_t entity) {
    const auto feed = std::make_shared<Feed>(
        core_, link, kPipe, Feed::Options{.window = Window::said(4, 1 << 20)}, [] {});
    {
      const detail::Lock receiving(link->receive_mutex());
      link->attach(kPipe, feed);
    }
    Streams::Changes changes;
    const Streams::Candidate candidate{{{}, entity}, "count", {}, 0};
    ASSERT_TRUE(succeeds(streams_.add(candidate, feed, changes)));
  }
  ~StreamsOverTwoLinks() override {
    for (const auto& feed : streams_.clear()) feed->close();
  }

  Context context_ = Context::create({.progress = Progress::manual}).value();
  const std::shared_ptr<ContextCore> core_ = ContextCore::of(context_);
  const std::shared_ptr<PeerlessLink> first_ = std::make_shared<PeerlessLink>();
  const std::shared_ptr<PeerlessLink> second_ = std::make_shared<PeerlessLink>();
  Streams streams_{{.lease = 1s}};
};

// A stream that was open when it was looked at, and over when the others had been, is looked at
// again: nobody else would ever tell its end.
TEST_F(StreamsOverTwoLinks, KeepOneWhoseLinkIsLostWhileAnotherIsLookedAt) {
  add(first_, 1);
  add(second_, 2);
  const Streams::Time now{};
  std::atomic<pid_t> looker = 0;
  std::thread looking;
  {
    const detail::Lock receiving(second_->receive_mutex());
    looking = std::thread([&] {
      looker = gettid();
      (void)streams_.settle(now);
    });
    EXPECT_TRUE(eventually([&] { return looker != 0; }));
    EXPECT_TRUE(falls_asleep(looker)) << "it waits for the second link";
    first_->fail(Error{ErrorCode::peer_lost, "test", "lost meanwhile"}, Death::not_proved);
  }
  looking.join();
  (void)streams_.settle(now);
  const auto changes = streams_.settle(now + 1s);
  ASSERT_EQ(changes.told.size(), 1u);
  EXPECT_EQ(changes.told.front().entity, 1u);
  EXPECT_EQ(changes.told.front().reason, EndReason::lost);
}

}  // namespace
}  // namespace tendon::test
