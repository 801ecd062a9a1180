// SPDX-License-Identifier: Apache-2.0 The limits of what a peer of the same user can make this
// process hold, and of how long it can keep a thread busy. Tests counters and turns, at the limit
// and one beyond.
#include <dirent.h>

#include <functional>
#include <tendon/session/limits.hpp>

#include "raw_shm_peer.hpp"
#include "transport/private_body.hpp"
#include "transport/shm/peer_segments.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kMessageCount = ControlBlock::kMessageCount;

Descriptor inline_message(std::uint64_t sequence, std::uint32_t size_bytes) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.flags = Descriptor::kInline;
  descriptor.pipe = 1;
  descriptor.sequence = sequence;
  descriptor.payload_bytes = size_bytes;
  descriptor.segment_or_inline_bytes = size_bytes;
  return descriptor;
}

// Calls back for each message, so that a peer can send without end and without a thread of its own.
class TalkingSink final : public MessageSink {
 public:
  explicit TalkingSink(std::function<void()> on_each) : on_each_(std::move(on_each)) {}
  void on_message(Incoming&&) override {
    ++count;
    on_each_();
  }
  Result<void> on_segment(std::uint32_t, std::shared_ptr<Segment>) override {
    ++segment_count;
    segments_at_first_message += count == 0 ? 1 : 0;
    on_each_();
    return {};
  }
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor&) override { return true; }
  void on_transfer_ended(const Transfer&) override {}
  void on_link_failed(const Error&) override {}

  std::uint64_t count = 0;
  std::uint64_t segment_count = 0;
  std::uint64_t segments_at_first_message = 0;

 private:
  const std::function<void()> on_each_;
};

std::shared_ptr<TalkingSink> attach_talking(RawShmPeer& peer, std::function<void()> on_each) {
  auto sink = std::make_shared<TalkingSink>(std::move(on_each));
  std::lock_guard lock(peer.end.link->receive_mutex());
  peer.end.link->attach(1, sink);
  return sink;
}

std::size_t open_descriptors() {
  std::size_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// Another message follows each one: the ring is never empty.
TEST(ShmHeld, APeerThatHangsUpAndTalksOnIsHeardForOneRingAtMost) {
  RawShmPeer peer;
  std::uint64_t sequence = 1;
  const auto sink = attach_talking(peer, [&] { peer.publish(inline_message(++sequence, 0)); });
  peer.publish(inline_message(sequence, 0));
  peer.hang_up();
  ASSERT_TRUE(peer.reactor.turn(1000));
  EXPECT_TRUE(peer.end.link->ended());
  EXPECT_LE(sink->count, kMessageCount);
  EXPECT_GT(sink->count, 0u);
}

// The peer claims to be another process, which is dead, and continues to send.
TEST(ShmHeld, AFalseProofOfDeathIsHeardForOneRingAtMost) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  RawShmPeer peer(child);
  std::uint64_t sequence = 1;
  const auto sink = attach_talking(peer, [&] { peer.publish(inline_message(++sequence, 0)); });
  peer.publish(inline_message(sequence, 0));
  ASSERT_TRUE(peer.reactor.turn(1000));
  EXPECT_TRUE(peer.end.link->ended());
  EXPECT_LE(sink->count, kMessageCount);
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED);
}

TEST(ShmHeld, AFloodOfAnnouncementsIsTakenInPieces) {
  RawShmPeer peer;
  Descriptor for_nobody;
  for_nobody.kind = MessageKind::segment;
  for_nobody.pipe = 9;
  for_nobody.payload_bytes = 4096;
  const int fd = peer.segment_fd(4096);
  for (int i = 0; i < 100; ++i) peer.announce(for_nobody, {fd});
  EXPECT_TRUE(peer.reactor.turn(1000));
  peer.publish(inline_message(1, 5));
  RecordingSink& sink = peer.end.attach(1);
  peer.settle();
  EXPECT_EQ(sink.received.size(), 1u);
  EXPECT_FALSE(peer.end.link->ended());
}

Descriptor published_segment(std::uint32_t pipe) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::segment;
  descriptor.pipe = pipe;
  descriptor.payload_bytes = 4096;
  return descriptor;
}

// Attaches a sink that announces `most` segments to itself, one after another: more than a socket
// holds at once.
std::shared_ptr<TalkingSink> attach_announcing(RawShmPeer& peer, int fd, std::uint64_t most) {
  const auto count = std::make_shared<std::uint64_t>(0);
  return attach_talking(peer, [&peer, fd, most, count] {
    if (++*count < most) peer.announce(published_segment(1), {fd});
  });
}

// Each of these messages makes the link look for announcements, and there is always one more. This
// happens in a turn of poll(), when the peer seems dead, and when the Context hears of the socket.
TEST(ShmHeld, OneTurnTakesALimitedNumberOfAnnouncements) {
  for (const MessageKind kind : {MessageKind::cancel, MessageKind::end}) {
    RawShmPeer peer;
    const auto segment = Segment::create(4096, Writers::maker_only).value();
    const auto sink = attach_announcing(peer, segment->fd(), 100'000);
    peer.announce(published_segment(1), {segment->fd()});
    Descriptor message;
    message.kind = kind;
    message.pipe = 9;  // of no pipe
    for (std::uint64_t i = 0; i < kMessageCount; ++i) peer.publish(message);
    EXPECT_TRUE(peer.end.poll());
    EXPECT_EQ(sink->segment_count, PeerSegments::kMostAnnouncements);
    EXPECT_FALSE(peer.end.link->ended());
    EXPECT_TRUE(peer.end.poll());
    EXPECT_EQ(sink->segment_count, 2 * PeerSegments::kMostAnnouncements);
    ASSERT_TRUE(peer.reactor.turn(1000));
    EXPECT_EQ(sink->segment_count, 3 * PeerSegments::kMostAnnouncements);
  }
}

// The same limit holds when nothing waits: a message takes in everything that was announced before
// it.
TEST(ShmHeld, OneTurnTakesALimitedNumberOfAnnouncementsForAllItsMessages) {
  constexpr std::uint64_t kBeforeEach = 100;
  RawShmPeer peer;
  const auto segment = Segment::create(4096, Writers::maker_only).value();
  std::uint64_t announced = 0;
  const auto sink = attach_talking(peer, [&] {
    if (++announced % (kBeforeEach + 1) != 0) peer.announce(published_segment(1), {segment->fd()});
  });
  peer.announce(published_segment(1), {segment->fd()});
  Descriptor message;
  message.kind = MessageKind::cancel;
  message.pipe = 1;
  for (std::uint64_t i = 0; i < kMessageCount; ++i) peer.publish(message);
  EXPECT_TRUE(peer.end.poll());
  EXPECT_EQ(sink->segment_count, PeerSegments::kMostAnnouncements);
  EXPECT_EQ(sink->count, PeerSegments::kMostAnnouncements / kBeforeEach);
}

TEST(ShmHeld, AFalseProofOfDeathIsHeardForOneTurnOfAnnouncements) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  RawShmPeer peer(child);
  const auto segment = Segment::create(4096, Writers::maker_only).value();
  const auto sink = attach_announcing(peer, segment->fd(), 100'000);
  peer.announce(published_segment(1), {segment->fd()});
  Descriptor message;
  message.kind = MessageKind::cancel;
  message.pipe = 9;
  for (std::uint64_t i = 0; i < kMessageCount; ++i) peer.publish(message);
  while (!peer.end.link->ended()) ASSERT_TRUE(peer.reactor.turn(1000));
  // The turn of the socket may have been before that of the proof.
  EXPECT_LE(sink->segment_count, 2 * PeerSegments::kMostAnnouncements);
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED);
}

// A message waits for everything that was announced before it, however many turns that takes. A
// message whose body lies in a segment that is announced behind these waits as well.
TEST(ShmHeld, AMessageWaitsForWhatWasAnnouncedBeforeIt) {
  constexpr std::uint64_t kSegments = 2 * PeerSegments::kMostAnnouncements + 100;
  for (const bool in_slot : {false, true}) {
    RawShmPeer peer;
    const auto segment = Segment::create(4096, Writers::maker_only).value();
    const int slots = peer.segment_fd(4096);
    const Descriptor of_slots = announcement(0, 4096, 1);
    std::uint64_t announced = 0;
    const auto sink = attach_talking(peer, [&] {
      if (++announced < kSegments) peer.announce(published_segment(1), {segment->fd()});
      if (announced == kSegments) peer.announce(of_slots, {slots});
    });
    peer.announce(published_segment(1), {segment->fd()});
    Descriptor message;
    message.kind = in_slot ? MessageKind::bytes : MessageKind::end;
    message.pipe = 1;
    message.sequence = 1;
    message.payload_bytes = in_slot ? 100 : 0;
    message.generation = in_slot ? 1 : 0;
    peer.publish(message);
    // Polls without a look at the socket, which would take in the rest.
    while (peer.end.poll()) {
    }
    EXPECT_FALSE(peer.end.link->ended());
    EXPECT_EQ(sink->count, 1u);
    EXPECT_EQ(sink->segments_at_first_message, kSegments);
  }
}

// Returns promise no slots, so their number has no limit; the link looks at them under its sending
// lock.
TEST(ShmHeld, ReturnsAreTakenOneRingAtATime) {
  RawShmPeer peer;
  for (std::uint64_t i = 0; i < ControlBlock::kReturnCount; ++i)
    peer.give_back({0, static_cast<std::uint32_t>(i), 1});
  ASSERT_TRUE(succeeds(peer.end.link->acquire(4096)));
  EXPECT_EQ(peer.end.link->stats().slots.ignored_returns, ControlBlock::kReturnCount);
}

// The owner lends more than it has places for, by lending the same slot repeatedly.
TEST(ShmHeld, AReturnWithoutAPlaceIsCounted) {
  RawShmPeer peer;
  const auto sink = attach_talking(peer, [] {});  // drops messages
  peer.announce(announcement(0, 4096, 1), {peer.segment_fd(4096)});
  Descriptor message = inline_message(0, 100);
  message.flags = 0;
  message.segment_or_inline_bytes = 0;
  for (std::uint64_t i = 1; i <= ControlBlock::kReturnCount + 3; ++i) {
    message.sequence = message.generation = i;
    peer.publish(message);
    if (i % kMessageCount == 0) peer.settle();
  }
  peer.settle();
  EXPECT_EQ(sink->count, ControlBlock::kReturnCount + 3);
  EXPECT_EQ(peer.end.link->stats().dropped_returns, 3u);
  EXPECT_EQ(peer.theirs().returns.tail.load(), ControlBlock::kReturnCount);
}

TEST(ShmHeld, AnswersToAPeerThatNeverReadsHaveALimit) {
  RawShmPeer peer;
  const std::string text(400, 'x');
  Descriptor answer;
  answer.kind = MessageKind::error;
  answer.pipe = 1;
  answer.payload_bytes = text.size();
  std::uint64_t sequence = 0;
  const auto sink = attach_talking(peer, [&] { peer.end.link->post(answer, as_bytes(text)); });
  // Publishes while the link takes messages, up to 64 MiB of answers.
  std::uint64_t published = 0;
  while (published < (64u << 20) / text.size()) {
    const std::uint64_t taken = peer.mine().messages.head.load();
    if (published - taken == kMessageCount) break;
    peer.publish(inline_message(++sequence, 0));
    ++published;
    peer.end.poll();
  }
  EXPECT_LT(sink->count * text.size(), 4u << 20);
  EXPECT_FALSE(peer.end.link->ended());
  EXPECT_FALSE(peer.end.link->has_input()) << "a paused ring must not keep the Context awake";
  // Reading the answers lets everything continue.
  ControlBlock& theirs = peer.theirs();
  ASSERT_TRUE(eventually(
      [&] {
        theirs.messages.head.store(theirs.messages.tail.load());
        peer.end.poll();
        return sink->count == published;
      },
      [] {}));
}

TEST(ShmHeld, SmallMessagesThatNobodyTakesPauseTheLink) {
  RawShmPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  const std::uint64_t limit = private_limit_bytes(RawShmPeer::kCapBytes);
  std::uint64_t published = 0;
  while (published * kMaxInlineBytes < 4 * limit &&
         published - peer.mine().messages.head.load() < kMessageCount) {
    peer.publish(inline_message(++published, kMaxInlineBytes));
    peer.end.poll();
  }
  EXPECT_LE(peer.end.link->stats().most_held_bytes, limit + kMaxInlineBytes);
  EXPECT_LT(sink.received.size(), published);
  EXPECT_FALSE(peer.end.link->has_input()) << "a paused ring must not keep the Context awake";
  EXPECT_FALSE(peer.reactor.turn(0));
  std::uint64_t taken = 0;
  ASSERT_TRUE(eventually(
      [&] {
        std::lock_guard lock(peer.end.link->receive_mutex());
        taken += sink.received.size();
        sink.drop_bodies();
        return taken == published;
      },
      [&] {
        // Acts as the Context does: epoll first, then input that epoll does not report.
        peer.reactor.turn(1);
        if (peer.end.link->has_input()) peer.end.poll();
      }));
  EXPECT_EQ(peer.end.link->stats().held_bytes, 0u);
}

// The owner lends one slot repeatedly, as the steps of collectives do: no number of slots limits
// it.
TEST(ShmHeld, MessagesInOneSlotThatNobodyTakesPauseTheLink) {
  constexpr std::uint64_t kCostBytes = 256;  // of one message
  RawShmPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  peer.announce(announcement(0, 4096, 1), {peer.segment_fd(4096)});
  const std::uint64_t limit = private_limit_bytes(RawShmPeer::kCapBytes);
  std::uint64_t published = 0;
  while (published * kCostBytes < 2 * limit &&
         published - peer.mine().messages.head.load() < kMessageCount) {
    ++published;
    Descriptor message = slot_message(published, 100);
    message.generation = static_cast<std::uint32_t>(published);
    peer.publish(message);
    peer.end.poll();
  }
  EXPECT_LE(peer.end.link->stats().most_held_bytes, limit);
  EXPECT_LE(sink.received.size(), limit / kCostBytes);
  EXPECT_GT(sink.received.size(), (limit - kMaxInlineBytes) / kCostBytes - 1);
  EXPECT_FALSE(peer.end.link->has_input()) << "a paused ring must not keep the Context awake";
  std::lock_guard lock(peer.end.link->receive_mutex());
  sink.drop_bodies();
  EXPECT_EQ(peer.end.link->stats().held_bytes, 0u);
}

// A link keeps one of its three descriptors, which will prove the death of its peer.
TEST(ShmHeld, ALinkThatEndedWithoutProofKeepsOneDescriptor) {
  RawShmPeer peer;
  peer.end.attach(1);
  const std::size_t before = open_descriptors();
  peer.hang_up();
  peer.settle();
  ASSERT_TRUE(peer.end.link->ended());
  EXPECT_EQ(open_descriptors(), before - 3) << "the peer's socket, the link's and the doorbell";
  peer.end.link->fail(Error{ErrorCode::peer_lost, "test", "proved"}, Death::proved);
  EXPECT_EQ(open_descriptors(), before - 4);
}

}  // namespace
}  // namespace tendon::test
