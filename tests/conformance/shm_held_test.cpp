// SPDX-License-Identifier: Apache-2.0
// What a peer of the same user can make this process hold, and for how long it can keep a thread of
// it busy: counters and turns, at the limit and one beyond.
#include <dirent.h>

#include <functional>
#include <tendon/session/limits.hpp>

#include "raw_shm_peer.hpp"
#include "transport/private_body.hpp"

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

// Calls back for each message, so that a peer can go on for ever without a thread of its own.
class TalkingSink final : public MessageSink {
 public:
  explicit TalkingSink(std::function<void()> on_each) : on_each_(std::move(on_each)) {}
  void on_message(Incoming&&) override {
    ++count;
    on_each_();
  }
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor&) override { return true; }
  void on_transfer_ended(const Transfer&) override {}
  void on_link_failed(const Error&) override {}

  std::uint64_t count = 0;

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

// Each message is followed by another one: the ring is never empty.
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

// It says that it is another process, which is dead, and talks on.
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

// Returns are no promise of slots, so there may be any number of them; they are looked at under the
// sending lock.
TEST(ShmHeld, ReturnsAreTakenOneRingAtATime) {
  RawShmPeer peer;
  for (std::uint64_t i = 0; i < ControlBlock::kReturnCount; ++i)
    peer.give_back({0, static_cast<std::uint32_t>(i), 1});
  ASSERT_TRUE(succeeds(peer.end.link->acquire(4096)));
  EXPECT_EQ(peer.end.link->stats().slots.ignored_returns, ControlBlock::kReturnCount);
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
  // As long as the link takes something, for 64 MiB of answers.
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
  EXPECT_FALSE(peer.end.link->has_input()) << "a paused ring must not keep the engine awake";
  // It reads: all goes on.
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
  EXPECT_FALSE(peer.end.link->has_input()) << "a paused ring must not keep the engine awake";
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
        // As the engine does: epoll first, then what it does not tell of.
        peer.reactor.turn(1);
        if (peer.end.link->has_input()) peer.end.poll();
      }));
  EXPECT_EQ(peer.end.link->stats().held_bytes, 0u);
}

// Of three descriptors a link keeps the one that will prove the death of its peer.
TEST(ShmHeld, ALinkThatEndedWithoutProofKeepsOneDescriptor) {
  RawShmPeer peer;
  peer.end.attach(1);
  const std::size_t before = open_descriptors();
  peer.hang_up();
  peer.settle();
  ASSERT_TRUE(peer.end.link->ended());
  EXPECT_EQ(open_descriptors(), before - 3) << "the peer's socket, the link's and the doorbell";
  peer.end.link->fail(Error{ErrorCode::peer_lost, "test", "proved"}, true);
  EXPECT_EQ(open_descriptors(), before - 4);
}

}  // namespace
}  // namespace tendon::test
