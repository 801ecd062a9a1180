// SPDX-License-Identifier: Apache-2.0
// Tensors on a GPU that a link sends from where they lie: how the peer answers, returns slots and
// changes the words. The test plays the peer, and the double provides the GPU.
#include "transport/shm/devices_out.hpp"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/address.hpp"
#include "cuda/device_pool.hpp"
#include "cuda/gpus.hpp"
#include "cuda/registered_slots.hpp"
#include "raw_shm_peer.hpp"
#include "support/cuda/loaded_double.hpp"
#include "transport/device_word.hpp"
#include "transport/shared_memory_link.hpp"
#include "transport/shm/device_fill.hpp"

namespace tendon::test {
namespace {

/// Runs before main(): the first use of CUDA reads the variable.
const bool kOutUsesDouble = setenv("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE, 1) == 0;

constexpr std::uint64_t kPoolBytes = std::uint64_t{64} << 20;

class DevicesOutTest : public testing::Test {
 protected:
  DevicesOutTest() {
    peer.end.link->agree(Features::of_minor(2), LinkRole::connector);
    gpu = cuda::process_gpus().value()->use(0, kPatience).value();
    pool = std::make_shared<cuda::DevicePool>(gpu->context(), gpu->thread(), kPoolBytes);
  }
  [[nodiscard]] Link& link() { return *peer.end.link; }
  [[nodiscard]] DevicesOut& devices() { return link().shared_memory()->devices_out(); }
  void offer() {
    EXPECT_EQ(link().device_offers.number_of(gpu->context()->uuid(),
                                             [&](const Descriptor& word) { link().post(word); }),
              0u);
    EXPECT_EQ(peer.next_message()->tag, 1u);
  }
  [[nodiscard]] static Descriptor answer(DeviceAnswer said, std::uint64_t number = 1) {
    Descriptor word = device_word(DeviceWord::answer, 0);
    word.sequence = number;
    word.slot = static_cast<std::uint32_t>(said);
    return word;
  }
  void say(const Descriptor& word) {
    peer.publish(word);
    peer.settle();
  }
  void pass(const Descriptor& word, int descriptor) {
    peer.announce(word, {descriptor});
    peer.settle();
  }
  void say_direct(std::uint64_t number = 1) {
    if (words_ == nullptr) words_ = Segment::create(sizeof(ReadyWords)).value();
    pass(answer(DeviceAnswer::direct, number), words_->fd());
  }
  [[nodiscard]] ReadyWords& words() const { return *reinterpret_cast<ReadyWords*>(words_->data()); }
  void open() {
    offer();
    say_direct();
    ASSERT_EQ(devices().way(0), DevicesOut::Way::direct);
  }
  [[nodiscard]] std::shared_ptr<cuda::DeviceSlot> slot(std::uint64_t size_bytes = 4096) {
    return pool->acquire(size_bytes, kPatience).value();
  }
  /// Makes a message whose leaves on the GPU lie in a slot already.
  [[nodiscard]] std::unique_ptr<DeviceFill> fill(std::uint64_t size_bytes = 64) {
    auto its_slot = slot(size_bytes);
    auto hold = devices().hold(*its_slot).value();
    if (hold == nullptr) return nullptr;
    auto its_words = devices().words(0, gpu, kPatience).value();
    auto work = cuda::StreamWork::begin(gpu, nullptr, "test").value();
    return std::make_unique<DeviceFill>(
        DeviceFill::Parts{gpu, std::move(work), std::move(its_slot), std::move(hold),
                          std::move(its_words), [this] { ++wake_count; }},
        0, size_bytes);
  }
  [[nodiscard]] Result<Sent> send(DeviceFill& fill, std::uint64_t host_bytes = 0) {
    host.resize(host_bytes, std::byte{3});
    const BodyPart part{0, host, nullptr, host_bytes};
    SendOp op;
    op.descriptor.kind = MessageKind::data;
    op.descriptor.pipe = 1;
    op.descriptor.sequence = ++sequence_;
    op.descriptor.layout = Layout::aligned;
    op.descriptor.payload_bytes = host_bytes;
    op.descriptor.device_parts = 1;
    if (host_bytes != 0) op.parts = {&part, 1};
    op.device = &fill;
    op.device_part = fill.part();
    return link().send(op, Deadline::never());
  }
  /// Shows the message and ends the part of its sender.
  static void finish(DeviceFill& fill) {
    fill.note_shown();
    fill.leave();
  }
  void sends(DeviceFill& fill) {
    const auto sent = send(fill);
    ASSERT_TRUE(succeeds(sent));
    ASSERT_EQ(*sent, Sent::done);
  }
  /// Returns the device part of the next message, which is small.
  [[nodiscard]] DevicePart next_part() {
    const auto message = peer.next_message();
    DevicePart part;
    EXPECT_TRUE(message && message->device_parts == 1 && message->is_inline());
    if (message)
      std::memcpy(
          &part, peer.theirs().arena.data() + message->offset + message->body_bytes() - sizeof part,
          sizeof part);
    return part;
  }
  /// Waits until the device thread has done its tasks.
  void settle_gpu() {
    EXPECT_TRUE(succeeds(gpu->thread().run([] { return Result<void>(); }, kPatience)));
  }
  [[nodiscard]] testing::AssertionResult is_violation(std::string_view text) {
    if (!peer.error()) return testing::AssertionFailure() << "the link lives";
    return fails_with(Result<void>(*peer.error()), ErrorCode::protocol_violation, text);
  }

  CudaDouble fake{CudaDouble::World::as_it_is};
  std::shared_ptr<cuda::Gpu> gpu;
  std::shared_ptr<cuda::DevicePool> pool;
  RawShmPeer peer;
  std::atomic<int> wake_count = 0;
  std::vector<std::byte> host;

 private:
  std::shared_ptr<Segment> words_;
  std::uint64_t sequence_ = 0;
};

// Answers

TEST_F(DevicesOutTest, TheLastAnswerCounts) {
  offer();
  EXPECT_EQ(devices().way(0), DevicesOut::Way::unknown);
  say(answer(DeviceAnswer::unused, 1));
  EXPECT_EQ(devices().way(0), DevicesOut::Way::staged);
  EXPECT_NE(devices().why_staged(0).find("CUDA"), std::string::npos);
  say_direct(3);
  EXPECT_EQ(devices().way(0), DevicesOut::Way::direct);
  say(answer(DeviceAnswer::unmappable, 2));  // the ring was behind the socket
  say(answer(DeviceAnswer::unmappable, 3));
  EXPECT_EQ(devices().way(0), DevicesOut::Way::direct);
  say(answer(DeviceAnswer::unmappable, 4));
  EXPECT_EQ(devices().way(0), DevicesOut::Way::staged);
  say_direct(5);
  EXPECT_EQ(devices().way(0), DevicesOut::Way::direct);
  EXPECT_FALSE(peer.error());
}

TEST_F(DevicesOutTest, AnAnswerWithoutAnOfferEndsTheLink) {
  say(answer(DeviceAnswer::unmappable));
  EXPECT_TRUE(is_violation("not offered"));
}

TEST_F(DevicesOutTest, AnAnswerWithoutANumberEndsTheLink) {
  offer();
  say(answer(DeviceAnswer::unmappable, 0));
  EXPECT_TRUE(is_violation("number"));
}

TEST_F(DevicesOutTest, AnAnswerThatNobodyKnowsEndsTheLink) {
  offer();
  say(answer(static_cast<DeviceAnswer>(3)));
  EXPECT_TRUE(is_violation("nobody knows"));
}

TEST_F(DevicesOutTest, DirectWithoutWordsEndsTheLink) {
  offer();
  say(answer(DeviceAnswer::direct));
  EXPECT_TRUE(is_violation("ready words"));
}

TEST_F(DevicesOutTest, StagedWithADescriptorEndsTheLink) {
  offer();
  pass(answer(DeviceAnswer::unmappable), peer.segment_fd(sizeof(ReadyWords)));
  EXPECT_TRUE(is_violation("ready words"));
}

TEST_F(DevicesOutTest, WordsOfAnotherSizeEndTheLink) {
  offer();
  pass(answer(DeviceAnswer::direct), peer.segment_fd(4096));
  EXPECT_TRUE(is_violation("4096"));
}

TEST_F(DevicesOutTest, WordsThatAreNoMemoryEndTheLink) {
  offer();
  pass(answer(DeviceAnswer::direct), peer.doorbell());
  EXPECT_TRUE(is_violation(""));
}

TEST_F(DevicesOutTest, WordsThatTheDriverRefusesMakeItStaged) {
  open();
  fake.fail("cuMemHostRegister_v2", 2, 0);
  EXPECT_TRUE(fails_with(devices().words(0, gpu, kPatience), ErrorCode::resource_exhausted));
  fake.fail("cuMemHostRegister_v2", 0, 0);
  EXPECT_EQ(devices().way(0), DevicesOut::Way::staged);
  EXPECT_NE(devices().why_staged(0).find("cuMemHostRegister"), std::string::npos);
}

// Segments

TEST_F(DevicesOutTest, ASegmentIsPassedOnceAndItsEndIsTold) {
  offer();
  auto used = slot();
  ASSERT_EQ(devices().share(0, *used).value(), Sent::done);
  ASSERT_EQ(devices().share(0, *used).value(), Sent::done);
  const auto heard = peer.hear();
  ASSERT_TRUE(heard);
  const Descriptor& word = heard->first;
  EXPECT_EQ(word.tag, static_cast<std::uint32_t>(DeviceWord::segment));
  EXPECT_TRUE(uuid_of(word) == gpu->context()->uuid());
  EXPECT_EQ(word.segment_or_inline_bytes, used->id().segment);
  EXPECT_EQ(word.payload_bytes, 4096u);
  EXPECT_EQ(word.slot * word.payload_bytes, used->segment()->size_bytes());
  const std::uint64_t whole = word.slot * word.payload_bytes;
  EXPECT_TRUE(succeeds(gpu->thread().run(
      [&, descriptor = std::make_shared<OwnedFd>(dup(heard->second.get()))] {
        return cuda::DeviceSegment::import(gpu->context(), gpu->thread(), *descriptor, whole);
      },
      kPatience)));
  EXPECT_FALSE(peer.hear());
  const std::uint32_t number = used->id().segment;
  link().tick(std::chrono::steady_clock::now());
  EXPECT_FALSE(peer.next_message());
  used.reset();
  pool->trim(cuda::DevicePool::TimePoint::max());
  link().tick(std::chrono::steady_clock::now());
  link().tick(std::chrono::steady_clock::now());
  const auto gone = peer.next_message();
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->tag, static_cast<std::uint32_t>(DeviceWord::gone));
  EXPECT_EQ(gone->segment_or_inline_bytes, number);
  EXPECT_FALSE(peer.next_message());
}

TEST_F(DevicesOutTest, APeerWithoutCudaKeepsOneSegmentToAnswerAbout) {
  offer();
  say(answer(DeviceAnswer::unused));
  auto used = slot();
  const std::weak_ptr<cuda::DeviceSegment> segment = used->segment();
  devices().ask_again(0, *pool, Deadline::now());
  used.reset();
  pool->trim(cuda::DevicePool::TimePoint::max());
  EXPECT_FALSE(segment.expired());
  say_direct(2);
  EXPECT_TRUE(segment.expired());
}

// Messages

TEST_F(DevicesOutTest, AMessageIsShownAtOnceAndItsWordFollows) {
  open();
  auto filled = fill();
  sends(*filled);
  const DevicePart part = next_part();
  EXPECT_EQ(part.word, 1u);
  EXPECT_EQ(part.size_bytes, 64u);
  EXPECT_GE(part.segment, cuda::DevicePool::kFirstSegment);
  EXPECT_FALSE(words().has(1));
  EXPECT_FALSE(link().drained());
  peer.mine().sleeping.store(1);
  finish(*filled);
  filled.reset();
  EXPECT_TRUE(eventually([&] { return words().told.load() == 1; }));
  EXPECT_TRUE(words().has(1));
  EXPECT_TRUE(eventually([&] { return wake_count == 1; })) << "drained() asked";
  EXPECT_TRUE(link().has_input());
  peer.settle();
  EXPECT_FALSE(link().has_input());
  EXPECT_TRUE(link().drained());
  std::uint64_t rings = 0;
  EXPECT_EQ(read(peer.doorbell(), &rings, sizeof rings), static_cast<ssize_t>(sizeof rings));
}

TEST_F(DevicesOutTest, TheNumberStandsBehindABodyInASlotToo) {
  open();
  for (const std::uint64_t number : {1u, 2u}) {
    auto filled = fill();
    const auto sent = send(*filled, 100'000);
    ASSERT_TRUE(succeeds(sent));
    std::optional<Descriptor> message = peer.next_message();
    ASSERT_TRUE(message && !message->is_inline());
    DevicePart part;
    // Copies the part once before it has its number, and once after.
    std::memcpy(&part, filled->part().data(), sizeof part);
    EXPECT_EQ(part.word, number);
    if (number == 1) {
      auto heard = peer.hear();
      ASSERT_TRUE(heard);
      const auto memory =
          Segment::attach(std::move(heard->second), heard->first.payload_bytes * heard->first.slot)
              .value();
      const std::byte* const body = memory->data() + message->slot * heard->first.payload_bytes;
      EXPECT_EQ(body[99'999], std::byte{3});
      DevicePart written;
      std::memcpy(&written, body + 100'000, sizeof written);
      EXPECT_EQ(std::memcmp(&written, &part, sizeof part), 0);
    }
    finish(*filled);
  }
}

TEST_F(DevicesOutTest, AWordIsUsedAgainOnceItsCopyIsDone) {
  open();
  std::vector<std::unique_ptr<DeviceFill>> all;
  for (std::uint32_t i = 0; i < ReadyWords::kCount; ++i) {
    all.push_back(fill());
    ASSERT_NE(all.back(), nullptr) << i;
    ASSERT_EQ(send(*all.back()).value(), Sent::done);
    const DevicePart part = next_part();
    ASSERT_EQ(part.word, i + 1u);
    peer.theirs().messages.head.store(i + 2, std::memory_order_release);  // the peer has read them
    peer.give_back({part.segment, part.slot, part.generation});
    (void)link().collect_returns();
  }
  auto next = fill();
  EXPECT_EQ(send(*next).value(), Sent::later);
  finish(*all[1]);  // not the one whose word it needs
  all[1].reset();
  ASSERT_TRUE(eventually([&] { return wake_count == 1; }));
  EXPECT_EQ(send(*next).value(), Sent::later);
  finish(*all[0]);
  all[0].reset();
  ASSERT_TRUE(eventually([&] { return wake_count == 2; }));
  EXPECT_EQ(send(*next).value(), Sent::done);
  EXPECT_EQ(next_part().word, ReadyWords::kCount + 1u);
  finish(*next);
}

TEST_F(DevicesOutTest, WhatThePeerWritesIntoItsWordsHarmsNobody) {
  open();
  for (std::uint64_t i = 1; i <= 10; ++i) {
    std::memset(static_cast<void*>(&words()), 0xee, sizeof(ReadyWords));
    auto filled = fill();
    sends(*filled);
    EXPECT_EQ(next_part().word, i);
    finish(*filled);
    filled.reset();
    ASSERT_TRUE(eventually([&] { return words().told.load() == i; }));
    EXPECT_EQ(words().of(i).load(), i);
  }
}

TEST_F(DevicesOutTest, AWordThatCannotBeWrittenIsTold) {
  open();
  auto filled = fill();
  sends(*filled);
  (void)next_part();
  EXPECT_FALSE(link().drained());
  fake.fail("cuStreamWriteValue64_v2", 1, 0);
  finish(*filled);
  filled.reset();
  fake.fail("cuStreamWriteValue64_v2", 0, 0);
  std::optional<Descriptor> word;
  ASSERT_TRUE(eventually([&] { return (word = peer.next_message()).has_value(); }));
  EXPECT_EQ(word->tag, static_cast<std::uint32_t>(DeviceWord::incomplete));
  EXPECT_EQ(word->sequence, 1u);
  EXPECT_TRUE(eventually([&] { return link().drained(); }));
  EXPECT_EQ(words().told.load(), 0u);
}

// Holds

TEST_F(DevicesOutTest, ASlotIsFreeOnceItWasReturnedAndItsCopyIsDone) {
  open();
  auto filled = fill();
  sends(*filled);
  const DevicePart part = next_part();
  EXPECT_EQ(link().stats().holds, 1u);
  peer.give_back({part.segment, part.slot, part.generation});
  peer.give_back({part.segment, part.slot, part.generation});  // a lie
  peer.give_back({part.segment + 5, part.slot, part.generation});
  peer.give_back({~0u, ~0u, ~std::uint64_t{0}});
  (void)link().collect_returns();
  EXPECT_EQ(link().stats().holds, 0u);
  EXPECT_EQ(pool->stats().used_bytes, 4096u) << "it is copied yet";
  finish(*filled);
  filled.reset();
  EXPECT_TRUE(eventually([&] { return pool->stats().used_bytes == 0; }));
  EXPECT_FALSE(peer.error());
}

TEST_F(DevicesOutTest, WhatIsNotSentIsNotHeld) {
  open();
  auto filled = fill();
  EXPECT_EQ(link().stats().holds, 1u);
  filled.reset();
  EXPECT_EQ(link().stats().holds, 0u);
  EXPECT_TRUE(eventually([&] { return pool->stats().used_bytes == 0; }));
}

TEST_F(DevicesOutTest, ALinkHasItsShareAndNoMore) {
  open();
  std::vector<std::unique_ptr<DeviceFill>> all;
  for (int i = 0; i < 5; ++i) all.push_back(fill(8 << 20));
  EXPECT_NE(all[3], nullptr);
  EXPECT_EQ(all[4], nullptr) << "half of the pool";
  all.front().reset();
  EXPECT_TRUE(eventually([&] { return fill(8 << 20) != nullptr; }));
}

TEST_F(DevicesOutTest, ADeadPeerHoldsNothingAndOneThatFailedDoes) {
  open();
  auto filled = fill();
  sends(*filled);
  finish(*filled);
  filled.reset();
  EXPECT_TRUE(eventually([&] { return words().told.load() == 1; }));
  const Error why{ErrorCode::peer_lost, "test", "the test ended it"};
  link().fail(why, Death::not_proved);
  EXPECT_EQ(pool->stats().holds.quarantined, 1u);
  EXPECT_EQ(pool->stats().used_bytes, 4096u);
  EXPECT_TRUE(fails_with(devices().hold(*slot()), ErrorCode::peer_lost));
  link().fail(why, Death::proved);
  EXPECT_TRUE(eventually([&] { return pool->stats().used_bytes == 0; }));
}

TEST_F(DevicesOutTest, WhatWasFilledBeforeTheEndIsNotSent) {
  open();
  auto filled = fill();
  link().fail(Error{ErrorCode::peer_lost, "test", "the test ended it"}, Death::proved);
  EXPECT_TRUE(fails_with(send(*filled), ErrorCode::peer_lost));
  filled.reset();
  EXPECT_TRUE(eventually([&] { return pool->stats().used_bytes == 0; }));
}

// Pages that stay

TEST_F(DevicesOutTest, APeerThatRegistersPagesIsAnsweredOnce) {
  say(device_word(DeviceWord::registers, 0));
  const auto answered = peer.next_message();
  ASSERT_TRUE(answered.has_value());
  EXPECT_EQ(answered->kind, MessageKind::device);
  EXPECT_EQ(answered->tag, static_cast<std::uint32_t>(DeviceWord::pages_stay));
  EXPECT_FALSE(peer.error().has_value());
  say(device_word(DeviceWord::registers, 0));
  EXPECT_TRUE(is_violation("asked twice"));
}

TEST_F(DevicesOutTest, APeerWithoutTheFeatureDoesNotAskWhetherPagesStay) {
  link().agree(Features::of_minor(1), LinkRole::connector);
  say(device_word(DeviceWord::registers, 0));
  EXPECT_TRUE(is_violation("without the feature"));
}

// The copy itself asks: nobody ticks here.
TEST_F(DevicesOutTest, TheFirstCopyOutOfASlotAsksWhetherPagesStay) {
  constexpr std::uint64_t kLeastBytes = cuda::RegisteredSlots::kLeastSlotBytes;
  const RecordingSink& sink = peer.end.attach(1);
  peer.announce(announcement(0, kLeastBytes, 1), {peer.segment_fd(kLeastBytes)});
  peer.publish(slot_message(1, kLeastBytes));
  peer.settle();
  ASSERT_EQ(sink.received.size(), 1u);
  const auto address = cuda::address_of(sink.received[0].body.data);
  const auto slots = cuda::RegisteredSlots::find(address);
  ASSERT_NE(slots, nullptr);
  EXPECT_FALSE(peer.next_message().has_value());
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(slots->use(address, 64, gpu).kept.empty());
  settle_gpu();
  const auto asked = peer.next_message();
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->kind, MessageKind::device);
  EXPECT_EQ(asked->tag, static_cast<std::uint32_t>(DeviceWord::registers));
  EXPECT_FALSE(peer.next_message().has_value()) << "once";
  say(device_word(DeviceWord::pages_stay, 0));
  EXPECT_FALSE(peer.error().has_value());
  EXPECT_FALSE(slots->use(address, 64, gpu).kept.empty()) << "it is registered behind this use";
  settle_gpu();
}

TEST_F(DevicesOutTest, PagesStayOnlyWhereItWasAsked) {
  say(device_word(DeviceWord::pages_stay, 0));
  EXPECT_TRUE(is_violation("nobody asked"));
}

}  // namespace
}  // namespace tendon::test
