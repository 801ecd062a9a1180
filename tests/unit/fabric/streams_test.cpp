// SPDX-License-Identifier: Apache-2.0
// The streams of a subscriber while links are lost.
#include "fabric/topics/streams.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

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
using detail::FeedQueue;
using detail::Streams;
using detail::Window;

constexpr std::uint32_t kPipe = 9;

class StreamsOverTwoLinks : public testing::Test {
 protected:
  /// Adds a stream of its own on this link.
  void add(const std::shared_ptr<PeerlessLink>& link, std::uint32_t entity) {
    const auto feed = std::make_shared<Feed>(
        core_, link, kPipe, Feed::Options{.window = Window::said(4, 1 << 20)}, queue_);
    {
      const detail::Lock receiving(link->receive_mutex());
      link->attach(kPipe, feed->sink());
    }
    Streams::Changes changes;
    const Streams::Candidate candidate{{{}, entity}, "count", {}, 0};
    ASSERT_TRUE(succeeds(streams_.add(candidate, feed, changes)));
    feeds_.push_back(feed);
    feed->tell_again();
  }
  ~StreamsOverTwoLinks() override {
    for (const auto& feed : streams_.clear()) feed->close();
  }

  Context context_ = Context::create({.progress = Progress::manual}).value();
  const std::shared_ptr<ContextCore> core_ = ContextCore::of(context_);
  const std::shared_ptr<PeerlessLink> first_ = std::make_shared<PeerlessLink>();
  const std::shared_ptr<PeerlessLink> second_ = std::make_shared<PeerlessLink>();
  const std::shared_ptr<FeedQueue> queue_ = std::make_shared<FeedQueue>([] {});
  std::vector<std::shared_ptr<Feed>> feeds_;
  Streams streams_{{.lease = 1s}};
};

// A stream may be open when it is examined, and over before the examination of the others ends. It
// is then examined again: nothing else would ever report its end.
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
      (void)streams_.settle(now, feeds_);
    });
    EXPECT_TRUE(eventually([&] { return looker != 0; }));
    EXPECT_TRUE(falls_asleep(looker)) << "it waits for the second link";
    first_->fail(Error{ErrorCode::peer_lost, "test", "lost meanwhile"}, Death::not_proved);
  }
  looking.join();
  (void)streams_.settle(now, queue_->take_changed());
  const auto changes = streams_.settle(now + 1s, queue_->take_changed());
  ASSERT_EQ(changes.told.size(), 1u);
  EXPECT_EQ(changes.told.front().entity, 1u);
  EXPECT_EQ(changes.told.front().reason, EndReason::lost);
}

// ---- streams that have something

TEST_F(StreamsOverTwoLinks, AreQueuedOnceEachWhileTheyHaveSomething) {
  add(first_, 1);
  add(second_, 2);
  EXPECT_EQ(queue_->next(), nullptr);
  queue_->push(*feeds_[1]);
  queue_->push(*feeds_[0]);
  queue_->push(*feeds_[1]);
  EXPECT_EQ(queue_->count(), 2u);
  EXPECT_EQ(queue_->next(), feeds_[1]);
  queue_->push(*feeds_[1]);
  EXPECT_EQ(queue_->next(), feeds_[0]) << "one that has more goes behind the others";
  EXPECT_EQ(queue_->next(), feeds_[1]);
  EXPECT_EQ(queue_->next(), nullptr);
}

TEST_F(StreamsOverTwoLinks, WaitAsideUntilTheyHaveTheirTurn) {
  add(first_, 1);
  queue_->push(*feeds_[0]);
  queue_->set_aside(queue_->next());
  queue_->push(*feeds_[0]);
  EXPECT_EQ(queue_->next(), nullptr);
  queue_->bring_back();
  EXPECT_EQ(queue_->next(), feeds_[0]);
}

TEST_F(StreamsOverTwoLinks, AreLookedAtWhenTheyHaveChangedAlone) {
  add(first_, 1);
  add(second_, 2);
  EXPECT_TRUE(queue_->take_changed().empty());
  EXPECT_EQ(queue_->open_count(), 2u);
  second_->fail(Error{ErrorCode::peer_lost, "test", "lost"}, Death::not_proved);
  EXPECT_EQ(queue_->open_count(), 1u);
  const auto changed = queue_->take_changed();
  ASSERT_EQ(changed.size(), 1u);
  EXPECT_EQ(changed.front(), feeds_[1]);
  const auto changes = streams_.settle({}, changed);
  ASSERT_EQ(changes.read_out.size(), 1u);
  EXPECT_EQ(streams_.channel_count(), 1u);
  EXPECT_EQ(streams_.connections()->links.size(), 1u);
}

/// Two incarnations of one node publish on one key.
class StreamsOfTwins : public testing::Test {
 protected:
  /// Connects the channel of this incarnation's publisher, the first time or again.
  [[nodiscard]] std::shared_ptr<Feed> connect(std::uint8_t incarnation,
                                              const std::shared_ptr<PeerlessLink>& link) {
    auto feed = std::make_shared<Feed>(core_, link, kPipe,
                                       Feed::Options{.window = Window::said(4, 1 << 20)}, queue_);
    {
      const detail::Lock receiving(link->receive_mutex());
      link->attach(kPipe, feed->sink());
    }
    ContextId context;
    context.bytes[0] = std::byte{incarnation};
    Streams::Changes changes;
    EXPECT_TRUE(succeeds(
        streams_.add({{context, 1}, "count", detail::PeerName::announced_as("vision"), incarnation},
                     feed, changes)));
    feeds_.push_back(feed);
    feed->tell_again();
    return feed;
  }
  // Closes streams too that were read to the end: a link holds a channel until it is closed.
  ~StreamsOfTwins() override {
    (void)streams_.clear();
    for (const auto& feed : feeds_) feed->close();
  }
  [[nodiscard]] bool has_its_turn(const std::shared_ptr<Feed>& feed) const {
    return streams_.entry_of(*feed)->has_its_turn();
  }

  Context context_ = Context::create({.progress = Progress::manual}).value();
  const std::shared_ptr<ContextCore> core_ = ContextCore::of(context_);
  std::array<std::shared_ptr<PeerlessLink>, 3> links_{std::make_shared<PeerlessLink>(),
                                                      std::make_shared<PeerlessLink>(),
                                                      std::make_shared<PeerlessLink>()};
  const std::shared_ptr<FeedQueue> queue_ = std::make_shared<FeedQueue>([] {});
  std::vector<std::shared_ptr<Feed>> feeds_;
  Streams streams_{{.lease = 1s}};
};

// The end of the lost stream waits for that of the older one, which closed and was not read. The
// samples of its return wait as well.
TEST_F(StreamsOfTwins, DeliverAnEndBeforeTheReturnOfItsPublisher) {
  const Streams::Time now{};
  const auto older = connect(1, links_[0]);
  const auto newer = connect(2, links_[1]);
  EXPECT_TRUE(has_its_turn(newer)) << "the older one goes on";
  {
    const detail::Lock receiving(links_[0]->receive_mutex());
    detail::Incoming end;
    end.descriptor.kind = detail::MessageKind::end;
    end.descriptor.sequence = 1;
    older->sink()->on_message(std::move(end));
  }
  links_[1]->fail(Error{ErrorCode::peer_lost, "test", "it was cut"}, Death::not_proved);
  EXPECT_EQ(streams_.settle(now, queue_->take_changed()).told.size(), 1u);
  const auto lost = streams_.settle(now + 1s, queue_->take_changed());
  ASSERT_EQ(lost.told.size(), 1u);
  EXPECT_EQ(lost.told.front().reason, EndReason::lost);
  EXPECT_TRUE(lost.over.empty()) << "it waits for the older one's";
  const auto returned = connect(2, links_[2]);
  EXPECT_FALSE(has_its_turn(returned));
  EXPECT_FALSE(older->take()) << "there is only its end";
  const auto read = streams_.settle(now + 1s, queue_->take_changed());
  ASSERT_EQ(read.over.size(), 2u);
  EXPECT_EQ(read.over.front().stream->incarnation, 1u);
  EXPECT_TRUE(has_its_turn(returned));
}

}  // namespace
}  // namespace tendon::test
