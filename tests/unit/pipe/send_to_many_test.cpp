// SPDX-License-Identifier: Apache-2.0
// One TensorDict for several pipes of a Context: peers that share memory read one copy.
#include "pipe/send_to_many.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/context_core.hpp"
#include "support/batches.hpp"
#include "support/pipe_pair.hpp"
#include "support/storage_on_gpu.hpp"

namespace tendon::test {
namespace {

constexpr std::uint64_t kLarge = 400'000;
constexpr std::uint64_t kPublishBytes = 4 << 20;  // a link has half of it at most: four messages

class SendToMany : public PipeTest {
 protected:
  struct Peer {
    Context context;
    Listener listener;
    Pipe out;  // of the sender
    Pipe in;
  };

  void add_peer(ContextOptions options = {}) {
    options.transport = way().transport;
    Context context = Context::create(options).value();
    Listener listener = Listener::bind(context, "127.0.0.1:0").value();
    Pipe out = Pipe::connect(sender_, listener.address(), kPatience).value();
    Pipe in = listener.accept(kPatience).value();
    peers_.push_back({std::move(context), std::move(listener), std::move(out), std::move(in)});
  }
  /// Sends `tensors` to all peers, and waits until they have left.
  void send_to_all(const TensorDict& tensors) {
    const auto kept = detail::keep_for_many(peers_.front().out, tensors);
    ASSERT_TRUE(succeeds(kept));
    for (Peer& peer : peers_)
      ASSERT_TRUE(succeeds(detail::send_kept_async(peer.out, *kept).wait(kPatience)));
  }
  [[nodiscard]] detail::PublishPoolStats pool() const {
    return detail::ContextCore::of(sender_)->publishing().pool()->stats();
  }

  Context sender_ = Context::create({.name = "sender",
                                     .progress = GetParam().client_progress,
                                     .transport = GetParam().transport,
                                     .publish_bytes = kPublishBytes})
                        .value();
  std::vector<Peer> peers_;
};
TENDON_ON_EVERY_WAY(SendToMany);

TEST_P(SendToMany, MemoryOfAGpuIsRefused) {
  add_peer();
  TensorDict tree;
  tree.set("x", Tensor::view(storage_on_gpu(64), 0, DType::u8, {64}).value());
  EXPECT_TRUE(fails_with(detail::keep_for_many(peers_.front().out, tree),
                         ErrorCode::unsupported_device, "'x'"));
}

TEST_P(SendToMany, AllPeersReadOneCopy) {
  for (int i = 0; i < 3; ++i) add_peer();
  TensorDict sent = patterned(1, kLarge);
  sent.set("step", 7);
  send_to_all(sent);
  fill_pattern(sent["x"].mutable_bytes(), 2);  // the caller's own again
  std::vector<TensorDict> views;
  for (Peer& peer : peers_) {
    views.push_back(peer.in.recv(kPatience).value());
    EXPECT_TRUE(is_patterned(views.back(), 1, kLarge));
    EXPECT_EQ(views.back().value("step").as_i64(), 7);
    EXPECT_EQ(views.back()["x"].access(), way().is_shm() ? Access::read_only : Access::read_write);
    EXPECT_EQ(peer.out.stats().copies, 0U);
  }
  if (way().is_shm()) {
    EXPECT_EQ(pool().slots.loaned_count, 1U);
    EXPECT_EQ(pool().holds, 3U);
  }
  views.clear();
  // Links return published slots with the next messages of their pipes.
  send_to_all(patterned(3, kLarge));
  for (Peer& peer : peers_) EXPECT_TRUE(is_patterned(peer.in.recv(kPatience).value(), 3, kLarge));
  EXPECT_LE(pool().holds, 3U);
}

TEST_P(SendToMany, SmallOnesTravelInline) {
  add_peer();
  send_to_all(patterned(1, 64));
  EXPECT_TRUE(is_patterned(peers_.front().in.recv(kPatience).value(), 1, 64));
  EXPECT_EQ(pool().slots.loaned_count, 0U);
}

TEST_P(SendToMany, OrderHoldsWithWhatIsSentOtherwise) {
  add_peer();
  Peer& peer = peers_.front();
  for (std::uint64_t i = 0; i < 20; i += 2) {
    ASSERT_TRUE(succeeds(peer.out.send(patterned(i, kLarge), kPatience)));
    send_to_all(patterned(i + 1, kLarge));
    EXPECT_TRUE(is_patterned(peer.in.recv(kPatience).value(), i, kLarge));
    EXPECT_TRUE(is_patterned(peer.in.recv(kPatience).value(), i + 1, kLarge));
  }
}

TEST_P(SendToMany, WithoutAFreeSlotEachPeerGetsACopy) {
  add_peer();
  const auto pool = detail::ContextCore::of(sender_)->publishing().pool();
  std::vector<std::shared_ptr<detail::PublishedSlot>> taken;
  while (auto slot = pool->acquire(kLarge)) taken.push_back(*std::move(slot));
  send_to_all(patterned(1, kLarge));
  const TensorDict received = peers_.front().in.recv(kPatience).value();
  EXPECT_TRUE(is_patterned(received, 1, kLarge));
  EXPECT_EQ(pool->stats().holds, 0U);
}

TEST_P(SendToMany, APeerThatTakesNothingDelaysNoOther) {
  constexpr std::uint64_t kMessages = 6;
  add_peer({.link_cap_bytes = 1 << 20});  // over sockets, room for two messages
  add_peer();
  std::vector<Completion<void>> slow;
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    const auto kept = detail::keep_for_many(peers_.front().out, patterned(i, kLarge));
    ASSERT_TRUE(succeeds(kept));
    slow.push_back(detail::send_kept_async(peers_.front().out, *kept));
    ASSERT_TRUE(succeeds(detail::send_kept_async(peers_.back().out, *kept).wait(kPatience)));
    EXPECT_TRUE(is_patterned(peers_.back().in.recv(kPatience).value(), i, kLarge));
  }
  // In shared memory it may fill its ring, with copies beyond its share.
  if (!way().is_shm()) {
    EXPECT_FALSE(slow.back().done());
  }
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    EXPECT_TRUE(succeeds(slow[i].wait(kPatience)));
    EXPECT_TRUE(is_patterned(peers_.front().in.recv(kPatience).value(), i, kLarge));
  }
}

}  // namespace
}  // namespace tendon::test
