// SPDX-License-Identifier: Apache-2.0
// Messages whose tensors lie on a GPU of their sender, as the link receives them: docs/protocol.md,
// "GPUs". The test plays the peer, and the double provides its GPU.
#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cuda/device_segment.hpp"
#include "cuda/gpus.hpp"
#include "raw_shm_peer.hpp"
#include "support/cuda/loaded_double.hpp"
#include "transport/device_word.hpp"
#include "transport/shm/ready_words.hpp"

namespace tendon::test {
namespace {

/// Runs before main(): the first use of CUDA reads the variable.
const bool kUsesDouble = setenv("TENDON_CUDA_LIBRARY", TENDON_CUDA_DOUBLE, 1) == 0;

constexpr std::uint32_t kFirst = std::uint32_t{3} << 30;
constexpr std::uint64_t kSlotBytes = std::uint64_t{1} << 20;

class DeviceParts : public testing::Test {
 protected:
  DeviceParts() {
    peer.end.link->agree(Features::of_minor(2), LinkRole::connector);
    gpu = cuda::process_gpus().value()->use(0, kPatience).value();
  }

  /// Makes memory on the GPU, as its owner passes it.
  std::shared_ptr<cuda::DeviceSegment> make_segment(std::uint64_t size_bytes = 2 * kSlotBytes) {
    return gpu->thread()
        .run([&] { return cuda::DeviceSegment::create(gpu->context(), gpu->thread(), size_bytes); },
             kPatience)
        .value();
  }
  [[nodiscard]] Descriptor word_of_segment(std::uint32_t number) const {
    Descriptor word = device_word(DeviceWord::segment, 0, gpu->context()->uuid());
    word.segment_or_inline_bytes = number;
    word.slot = 2;
    word.payload_bytes = kSlotBytes;
    return word;
  }
  void offer() { peer.publish(device_word(DeviceWord::offer, 0, gpu->context()->uuid())); }
  /// Waits until the link has answered on its socket.
  std::optional<std::pair<Descriptor, OwnedFd>> answer() {
    std::optional<std::pair<Descriptor, OwnedFd>> heard;
    EXPECT_TRUE(eventually([&] {
      peer.settle();
      heard = peer.hear();
      return heard.has_value();
    }));
    return heard;
  }
  Descriptor answer_in_ring() {
    std::optional<Descriptor> word;
    EXPECT_TRUE(eventually([&] {
      peer.settle();
      word = peer.next_message();
      return word.has_value();
    }));
    return word.value_or(Descriptor());
  }
  /// Does everything that lets the peer send.
  void open() {
    segment = make_segment();
    offer();
    peer.announce(word_of_segment(kFirst), {segment->descriptor().get()});
    auto answered = answer();
    ASSERT_TRUE(answered);
    words_memory = Segment::attach(std::move(answered->second), sizeof(ReadyWords)).value();
  }
  [[nodiscard]] ReadyWords& words() const {
    return *reinterpret_cast<ReadyWords*>(words_memory->data());
  }
  void write_word(std::uint64_t n) const {
    words().words[n % ReadyWords::kCount].store(n, std::memory_order_release);
  }
  [[nodiscard]] static DevicePart part_of(std::uint64_t word, std::uint32_t slot = 0) {
    DevicePart part;
    part.segment = kFirst;
    part.slot = slot;
    part.generation = 7;
    part.size_bytes = 64;
    part.word = word;
    return part;
  }
  void show(const DevicePart& part) {
    Descriptor descriptor;
    descriptor.kind = MessageKind::data;
    descriptor.pipe = 1;
    descriptor.sequence = ++sequence_;
    descriptor.layout = Layout::aligned;
    descriptor.device_parts = 1;
    descriptor.flags = Descriptor::kInline;
    descriptor.segment_or_inline_bytes = sizeof part;
    std::memcpy(peer.mine().arena.data(), &part, sizeof part);
    peer.publish(descriptor);
    peer.settle();
  }
  [[nodiscard]] DeviceBody& body(std::size_t index) { return *sink.received.at(index).device; }
  [[nodiscard]] bool arrived(std::size_t index) {
    const Lock receiving(peer.end.link->receive_mutex());
    return sink.received.at(index).arrived();
  }
  [[nodiscard]] bool aborted(std::size_t index) {
    const Lock receiving(peer.end.link->receive_mutex());
    return sink.received.at(index).aborted();
  }

  CudaDouble fake{CudaDouble::World::as_it_is};
  std::shared_ptr<cuda::Gpu> gpu;
  RawShmPeer peer;
  RecordingSink& sink = peer.end.attach(1);
  std::shared_ptr<cuda::DeviceSegment> segment;
  std::shared_ptr<Segment> words_memory;

 private:
  std::uint64_t sequence_ = 0;
};

TEST_F(DeviceParts, TheFirstSegmentIsAnsweredOnceItIsMapped) {
  segment = make_segment();
  offer();
  peer.announce(word_of_segment(kFirst), {segment->descriptor().get()});
  const auto answered = answer();
  ASSERT_TRUE(answered);
  const Descriptor& word = answered->first;
  EXPECT_EQ(word.kind, MessageKind::device);
  EXPECT_EQ(word.tag, 2u);
  EXPECT_EQ(word.schema, 0u);
  EXPECT_EQ(word.sequence, 1u);
  EXPECT_EQ(word.slot, 0u) << "direct";

  const auto second = make_segment();
  peer.announce(word_of_segment(kFirst + 1), {second->descriptor().get()});
  segment = second;
  EXPECT_TRUE(eventually([&] {
    peer.settle();
    return second.use_count() != 0 && fake.calls("cuMemImportFromShareableHandle") != 0;
  }));
  peer.settle();
  EXPECT_FALSE(peer.hear()) << "one answer a GPU";
  EXPECT_FALSE(peer.error());
}

TEST_F(DeviceParts, AMessageArrivesWithItsWordAndItsSlotReturnsWithItsLastShare) {
  open();
  std::memset(fake.writes(segment->address() + kSlotBytes, 64), 0x5a, 64);
  show(part_of(1, 1));
  ASSERT_EQ(sink.received.size(), 1u);
  EXPECT_FALSE(arrived(0));
  EXPECT_FALSE(peer.end.link->has_input());
  write_word(1);
  EXPECT_TRUE(peer.end.link->has_input()) << "a thread that looks before it sleeps sees it";
  EXPECT_TRUE(arrived(0));
  peer.settle();
  EXPECT_FALSE(peer.end.link->has_input());
  EXPECT_EQ(body(0).failure(), nullptr);
  EXPECT_EQ(body(0).gpu(), gpu);
  const auto* const bytes = static_cast<const unsigned char*>(fake.reads(body(0).address(), 64));
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(bytes[0], 0x5a);
  EXPECT_EQ(fake.writes(body(0).address(), 64), nullptr) << "mapped to be read only";

  std::shared_ptr<DeviceBody> share = sink.received[0].device;
  sink.received.clear();
  EXPECT_FALSE(peer.next_return());
  share.reset();
  const auto returned = peer.next_return();
  ASSERT_TRUE(returned);
  EXPECT_EQ(returned->segment, kFirst);
  EXPECT_EQ(returned->slot, 1u);
  EXPECT_EQ(returned->generation, 7u);
}

TEST_F(DeviceParts, WordsMayComeInAnyOrderAndNumbersMayBeSkipped) {
  open();
  show(part_of(2));
  show(part_of(5, 1));
  write_word(5);
  EXPECT_TRUE(arrived(1));
  EXPECT_FALSE(arrived(0));
  words().told.fetch_add(1);
  EXPECT_TRUE(peer.end.link->has_input()) << "the first one is still awaited";
  peer.settle();
  EXPECT_FALSE(peer.end.link->has_input());
  write_word(2);
  EXPECT_TRUE(arrived(0));
}

TEST_F(DeviceParts, AWordThatWasWrittenBeforeSaysSo) {
  open();
  write_word(1);
  show(part_of(1));
  EXPECT_TRUE(arrived(0));
}

TEST_F(DeviceParts, AnotherRoundOfTheWordsSaysNothingOfTheNext) {
  open();
  write_word(1);
  show(part_of(1 + ReadyWords::kCount));
  EXPECT_FALSE(arrived(0));
  write_word(1 + ReadyWords::kCount);
  EXPECT_TRUE(arrived(0));
}

TEST_F(DeviceParts, WhatHasNotArrivedWhenTheLinkEndsIsIncomplete) {
  open();
  show(part_of(1));
  show(part_of(2, 1));
  write_word(2);
  peer.hang_up();
  EXPECT_TRUE(eventually([&] {
    peer.settle();
    return peer.error().has_value();
  }));
  EXPECT_TRUE(aborted(0));
  EXPECT_FALSE(aborted(1));
  write_word(1);
  EXPECT_FALSE(arrived(0)) << "a word that comes later changes nothing";
  EXPECT_TRUE(arrived(1));
}

TEST_F(DeviceParts, APeerMaySayThatItsGpuIsLost) {
  open();
  show(part_of(1));
  show(part_of(2, 1));
  write_word(2);
  for (const std::uint64_t n : {1, 2, 3}) {
    Descriptor lost = device_word(DeviceWord::incomplete, 0);
    lost.sequence = n;
    peer.publish(lost);
  }
  peer.settle();
  EXPECT_TRUE(aborted(0));
  EXPECT_TRUE(arrived(1)) << "its word was there";
  EXPECT_FALSE(peer.error());
}

TEST_F(DeviceParts, AMessageOutlivesItsSegment) {
  open();
  show(part_of(1));
  write_word(1);
  Descriptor gone = device_word(DeviceWord::gone, 0);
  gone.segment_or_inline_bytes = kFirst;
  peer.publish(gone);
  peer.settle();
  EXPECT_FALSE(peer.error());
  EXPECT_TRUE(arrived(0));
  EXPECT_NE(fake.reads(body(0).address(), 64), nullptr);
  show(part_of(2));
  expect_violation(peer.end, "which was not announced", "mallory");
}

TEST_F(DeviceParts, ASegmentThatTheDriverCannotMapIsStaged) {
  offer();
  segment = make_segment();
  fake.fail("cuMemMap", 2, fake.calls("cuMemMap") + 1);
  peer.announce(word_of_segment(kFirst), {segment->descriptor().get()});
  const Descriptor word = answer_in_ring();
  EXPECT_EQ(word.kind, MessageKind::device);
  EXPECT_EQ(word.tag, 2u);
  EXPECT_EQ(word.slot, 2u);
  EXPECT_FALSE(peer.error());
  show(part_of(1));
  expect_violation(peer.end, "before this side has said that it reads one", "mallory");
}

TEST_F(DeviceParts, AGpuThatThisProcessDoesNotUseIsStaged) {
  Descriptor word = word_of_segment(kFirst);
  word.offset ^= 0x55;
  segment = make_segment();
  peer.announce(word, {segment->descriptor().get()});
  const Descriptor answered = answer_in_ring();
  EXPECT_EQ(answered.slot, 1u);
  EXPECT_FALSE(peer.error());
}

TEST_F(DeviceParts, WhatIsNoMemoryOfAGpuEndsTheLink) {
  offer();
  peer.announce(word_of_segment(kFirst), {peer.segment_fd(2 * kSlotBytes)});
  EXPECT_TRUE(eventually([&] {
    peer.settle();
    return peer.error().has_value();
  }));
  expect_violation(peer.end, "not the memory that it said", "mallory");
}

TEST_F(DeviceParts, ASegmentOfAnotherSizeEndsTheLink) {
  segment = make_segment();
  Descriptor word = word_of_segment(kFirst);
  word.slot = 4;
  peer.announce(word, {segment->descriptor().get()});
  EXPECT_TRUE(eventually([&] {
    peer.settle();
    return peer.error().has_value();
  }));
  expect_violation(peer.end, "not the memory that it said", "mallory");
}

struct WrongWord {
  std::string name;
  std::function<void(Descriptor&)> change;
  std::string text;
};
void PrintTo(const WrongWord& wrong, std::ostream* out) { *out << wrong.name; }

class WrongSegments : public DeviceParts, public testing::WithParamInterface<WrongWord> {};
TEST_P(WrongSegments, EndTheLink) {
  segment = make_segment();
  Descriptor word = word_of_segment(kFirst);
  GetParam().change(word);
  peer.announce(word, {segment->descriptor().get()});
  peer.settle();
  expect_violation(peer.end, GetParam().text, "mallory");
}
INSTANTIATE_TEST_SUITE_P(
    Device, WrongSegments,
    testing::Values(
        WrongWord{"number", [](Descriptor& word) { word.segment_or_inline_bytes = kFirst - 1; },
                  "malformed"},
        WrongWord{"gpu", [](Descriptor& word) { word.schema = 64; }, "malformed"},
        WrongWord{"no_slots", [](Descriptor& word) { word.slot = 0; }, "malformed"},
        WrongWord{"no_bytes", [](Descriptor& word) { word.payload_bytes = 0; }, "malformed"},
        WrongWord{"odd_bytes", [](Descriptor& word) { word.payload_bytes = 4095; }, "malformed"},
        WrongWord{"odd_size", [](Descriptor& word) { word.slot = 1; }, "malformed"},
        WrongWord{"overflow", [](Descriptor& word) { word.payload_bytes = std::uint64_t{1} << 63; },
                  "malformed"},
        WrongWord{"too_large",
                  [](Descriptor& word) { word.payload_bytes = std::uint64_t{1} << 46; },
                  "more than"},
        WrongWord{"offer_on_the_socket", [](Descriptor& word) { word.tag = 1; },
                  "unknown word about a GPU"},
        WrongWord{"unknown", [](Descriptor& word) { word.tag = 9; }, "unknown word about a GPU"}),
    [](const auto& one) { return one.param.name; });

struct WrongPart {
  std::string name;
  std::function<void(DevicePart&)> change;
  std::string text;
};
void PrintTo(const WrongPart& wrong, std::ostream* out) { *out << wrong.name; }

class WrongParts : public DeviceParts, public testing::WithParamInterface<WrongPart> {};
TEST_P(WrongParts, EndTheLink) {
  open();
  show(part_of(1));
  DevicePart part = part_of(2, 1);
  GetParam().change(part);
  show(part);
  expect_violation(peer.end, GetParam().text, "mallory");
}
INSTANTIATE_TEST_SUITE_P(
    Device, WrongParts,
    testing::Values(
        WrongPart{"gpu", [](DevicePart& part) { part.device = 1; }, "of GPU 1 in a segment"},
        WrongPart{"zero", [](DevicePart& part) { part.zero = 1; }, "in a segment of GPU 0"},
        WrongPart{"segment", [](DevicePart& part) { part.segment = kFirst + 1; },
                  "which was not announced"},
        WrongPart{"host_segment", [](DevicePart& part) { part.segment = 0; },
                  "which was not announced"},
        WrongPart{"slot", [](DevicePart& part) { part.slot = 2; }, "in slot 2 of 2"},
        WrongPart{"bytes", [](DevicePart& part) { part.size_bytes = kSlotBytes + 1; },
                  "bytes of 1048576"},
        WrongPart{"word_again", [](DevicePart& part) { part.word = 1; }, "does not rise"},
        WrongPart{"word_of_one_under_way",
                  [](DevicePart& part) { part.word = 1 + ReadyWords::kCount; },
                  "a message which has not arrived"}),
    [](const auto& one) { return one.param.name; });

// Word 0 means that the bytes are already there.
TEST_F(DeviceParts, APartWithoutAWordHasArrivedWhenItIsShown) {
  open();
  show(part_of(1));
  show(part_of(0, 1));
  EXPECT_FALSE(arrived(0));
  EXPECT_TRUE(arrived(1));
  EXPECT_FALSE(aborted(1));
  // It has no place in the order of the other parts.
  write_word(1);
  EXPECT_TRUE(arrived(0));
  show(part_of(2));
  EXPECT_FALSE(peer.end.link->ended());
}

TEST_F(DeviceParts, APartWithoutAWordIsCheckedAsOthersAre) {
  open();
  DevicePart part = part_of(0, 1);
  part.segment = kFirst + 1;
  show(part);
  expect_violation(peer.end, "which was not announced", "mallory");
}

TEST_F(DeviceParts, PeersWithoutTheFeatureMaySendNoPartWithoutAWord) {
  constexpr auto kBit = static_cast<std::uint64_t>(Feature::device_samples);
  open();
  peer.end.link->agree(Features(Features::of_minor(2).bits() & ~kBit), LinkRole::connector);
  show(part_of(0));
  expect_violation(peer.end, "does not rise", "mallory");
}

// The sink hears of memory that is mapped after its message arrived.
TEST_F(DeviceParts, ASinkIsToldWhenTheMemoryOfItsMessageIsMapped) {
  open();
  auto busy = std::make_shared<std::atomic<bool>>(true);
  ASSERT_TRUE(succeeds(gpu->thread().post([busy] {
    while (*busy) std::this_thread::yield();
  })));
  peer.announce(word_of_segment(kFirst + 1), {segment->descriptor().get()});
  DevicePart part = part_of(0);
  part.segment = kFirst + 1;
  show(part);
  EXPECT_FALSE(arrived(0));
  EXPECT_EQ(sink.tried_count, 0);
  *busy = false;
  EXPECT_TRUE(eventually([&] {
    peer.settle();
    return sink.tried_count == 1;
  }));
  EXPECT_TRUE(arrived(0));
}

TEST_F(DeviceParts, AGpuThatBecomesAnotherEndsTheLink) {
  open();
  Descriptor word = word_of_segment(kFirst + 1);
  word.generation ^= 1;
  peer.announce(word, {segment->descriptor().get()});
  peer.settle();
  expect_violation(peer.end, "GPU 0 is", "mallory");
}

TEST_F(DeviceParts, ASegmentThatIsAnnouncedTwiceEndsTheLink) {
  open();
  peer.announce(word_of_segment(kFirst), {segment->descriptor().get()});
  peer.settle();
  expect_violation(peer.end, "was announced twice", "mallory");
}

TEST_F(DeviceParts, PeersWithoutTheFeatureMayNot) {
  peer.end.link->agree(Features::of_minor(1), LinkRole::connector);
  segment = make_segment();
  peer.announce(word_of_segment(kFirst), {segment->descriptor().get()});
  peer.settle();
  expect_violation(peer.end, "unknown word about a GPU", "mallory");
}

}  // namespace
}  // namespace tendon::test
