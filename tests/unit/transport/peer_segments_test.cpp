// SPDX-License-Identifier: Apache-2.0
// How much of this process's address space the segments of one peer may take.
#include "transport/shm/peer_segments.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cstring>
#include <vector>

#include "support/few_descriptors.hpp"
#include "support/sanitizer.hpp"
#include "transport/shm/shm_link.hpp"

namespace tendon::detail {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kMost = PeerSegments::kMostMappedBytes;
constexpr std::uint64_t kPage = 4096;
constexpr std::uint32_t kPipe = 1;

/// Keeps the segments that it is shown.
class Shown final : public MessageSink {
 public:
  void on_message(Incoming&&) override {}
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor&) override { return true; }
  void on_transfer_ended(const Transfer&) override {}
  void on_link_failed(const Error&) override {}
  Result<void> on_segment(std::uint32_t, std::shared_ptr<Segment> segment) override {
    segments.push_back(std::move(segment));
    return {};
  }
  void on_segment_failed(std::uint32_t, const Error& error) override { failures.push_back(error); }

  std::vector<std::shared_ptr<Segment>> segments;
  std::vector<Error> failures;
};

/// A peer that announces its own segments. No page of them is ever touched.
class PeerSegmentsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer needs address space of its own";
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    here_ = OwnedFd(ends[0]);
    there_ = OwnedFd(ends[1]);
  }

  /// Publishes memory to the sink.
  void publish(std::uint64_t size_bytes) {
    Descriptor descriptor;
    descriptor.kind = MessageKind::segment;
    descriptor.pipe = kPipe;
    descriptor.payload_bytes = size_bytes;
    announce(descriptor, *Segment::create(size_bytes, Writers::maker_only).value());
  }
  /// Publishes this memory under a name that a pipe of the peer has for it.
  void publish(const Segment& segment, std::uint32_t name) {
    Descriptor descriptor;
    descriptor.kind = MessageKind::segment;
    descriptor.pipe = kPipe;
    descriptor.segment_or_inline_bytes = name;
    descriptor.payload_bytes = segment.size_bytes();
    announce(descriptor, segment);
  }
  /// Announces slots of the link; its first segment is number 0.
  void announce_slots(std::uint32_t id, std::uint64_t slot_bytes, std::uint32_t count) {
    Descriptor descriptor;
    descriptor.kind = MessageKind::segment;
    descriptor.segment_or_inline_bytes = id;
    descriptor.payload_bytes = slot_bytes;
    descriptor.slot = count;
    announce(descriptor, *Segment::create(slot_bytes * count, Writers::maker_and_peer).value());
  }
  /// The error for a message in the first slot of that segment, if any.
  std::optional<Error> failure_in(std::uint32_t id) {
    Descriptor descriptor;
    descriptor.kind = MessageKind::bytes;
    descriptor.segment_or_inline_bytes = id;
    descriptor.payload_bytes = 100;
    descriptor.generation = 1;
    const auto body = segments_.body_of(descriptor);
    EXPECT_TRUE(body);
    if (!body || body->failure() == nullptr) return {};
    return *body->failure();
  }

  Shown shown_;

 private:
  void announce(const Descriptor& descriptor, const Segment& segment) {
    const auto read = taken_in(descriptor, segment);
    ASSERT_TRUE(read) << "the link would end: " << read.error().message();
  }

 protected:
  Result<void> taken_in(const Descriptor& descriptor, const Segment& segment) {
    iovec io{const_cast<Descriptor*>(&descriptor), sizeof descriptor};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int passed = segment.fd();
    std::memcpy(CMSG_DATA(header), &passed, sizeof passed);
    EXPECT_EQ(sendmsg(there_.get(), &message, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof descriptor));
    return read();
  }
  Result<void> read() {
    segments_.begin_turn();
    return segments_.read(here_.get());
  }
  const PeerSegments& segments() const { return segments_; }

 private:
  const std::shared_ptr<ShmMemory> memory_ = std::make_shared<ShmMemory>(
      make_control_segment({}).value(), make_control_segment({}).value(),
      OwnedFd(eventfd(0, EFD_CLOEXEC)), kMost);
  PeerSegments segments_{"mallory", kMost, memory_, [this](std::uint32_t) { return &shown_; },
                         [](const Descriptor&, OwnedFd) { return Result<void>(); }};
  OwnedFd here_;
  OwnedFd there_;
};

TEST_F(PeerSegmentsTest, WhatIsShownIsMappedUpToTheLimitTogether) {
  publish(kMost - kPage);
  publish(kPage);
  EXPECT_EQ(shown_.segments.size(), 2u);
  EXPECT_TRUE(shown_.failures.empty());
  publish(kPage);
  EXPECT_EQ(shown_.segments.size(), 2u);
  ASSERT_EQ(shown_.failures.size(), 1u);
  EXPECT_EQ(shown_.failures.front().code, ErrorCode::resource_exhausted);
  EXPECT_THAT(shown_.failures.front().detail, HasSubstr(std::to_string(kMost)));
}

// Groups on one link have separate pipes, but show memory of one Context.
TEST_F(PeerSegmentsTest, WhatIsShownAgainIsMappedAndCountedOnce) {
  const auto segment = Segment::create(kMost / 2, Writers::maker_only).value();
  for (const std::uint32_t name : {1u, 1u, 2u}) publish(*segment, name);
  EXPECT_TRUE(shown_.failures.empty());
  ASSERT_EQ(shown_.segments.size(), 3u);
  EXPECT_EQ(shown_.segments[1], shown_.segments[0]);
  EXPECT_EQ(shown_.segments[2], shown_.segments[0]);
  publish(kMost / 2);
  EXPECT_TRUE(shown_.failures.empty()) << "the other half";
  // A name alone identifies nothing: two groups may use the same names.
  shown_.segments.clear();
  publish(*segment, 1);
  publish(*Segment::create(kPage, Writers::maker_only).value(), 1);
  ASSERT_EQ(shown_.segments.size(), 2u);
  EXPECT_NE(shown_.segments[0], shown_.segments[1]);
}

TEST_F(PeerSegmentsTest, WhatIsShownUnderManyNamesIsCountedForEach) {
  const auto segment = Segment::create(kPage, Writers::maker_only).value();
  Descriptor descriptor;
  descriptor.kind = MessageKind::segment;
  descriptor.pipe = kPipe;
  descriptor.payload_bytes = kPage;
  while (shown_.segments.size() < PeerSegments::kMaxPublished) {
    descriptor.segment_or_inline_bytes = static_cast<std::uint32_t>(shown_.segments.size());
    ASSERT_TRUE(taken_in(descriptor, *segment));
  }
  shown_.segments.pop_back();  // makes room for one
  EXPECT_TRUE(taken_in(descriptor, *segment));
  EXPECT_FALSE(taken_in(descriptor, *segment));
}

TEST_F(PeerSegmentsTest, WhatIsMappedNoMoreMakesRoom) {
  publish(kMost);
  ASSERT_EQ(shown_.segments.size(), 1u);
  publish(kPage);
  ASSERT_EQ(shown_.failures.size(), 1u);
  shown_.segments.clear();
  publish(kPage);
  EXPECT_EQ(shown_.segments.size(), 1u);
  publish(kMost);
  EXPECT_EQ(shown_.failures.size(), 2u) << "what is still mapped counts";
}

TEST_F(PeerSegmentsTest, SlotsAndWhatIsShownCountTogether) {
  announce_slots(0, kMost / 4, 3);
  publish(kMost / 4 - kPage);
  EXPECT_TRUE(shown_.failures.empty());
  publish(2 * kPage);
  EXPECT_EQ(shown_.failures.size(), 1u);
  publish(kPage);
  EXPECT_EQ(shown_.segments.size(), 2u);
}

TEST_F(PeerSegmentsTest, SlotsWithoutRoomCostTheirMessagesUntilThereIsSome) {
  publish(kMost - kPage);
  announce_slots(0, kPage, 1);
  announce_slots(1, kPage, 1);
  EXPECT_FALSE(failure_in(0));
  for (int i = 0; i < 2; ++i) {
    const auto failure = failure_in(1);
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->code, ErrorCode::resource_exhausted);
    EXPECT_THAT(failure->detail, HasSubstr("mallory"));
  }
  shown_.segments.clear();
  EXPECT_FALSE(failure_in(1));
  EXPECT_FALSE(failure_in(1)) << "it is mapped";
}

/// Announces a segment of one slot.
Descriptor one_slot(std::uint32_t id) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::segment;
  descriptor.segment_or_inline_bytes = id;
  descriptor.payload_bytes = kPage;
  descriptor.slot = 1;
  return descriptor;
}

TEST_F(PeerSegmentsTest, OneWithoutADescriptorStaysOnTheSocketUntilThereIsOne) {
  const std::vector made = {Segment::create(kPage, Writers::maker_and_peer).value(),
                            Segment::create(kPage, Writers::maker_and_peer).value()};
  {
    const test::FewDescriptors none(0);
    for (std::uint32_t id = 0; id < 2; ++id) {
      ASSERT_TRUE(taken_in(one_slot(id), *made[id])) << "the link would end";
      EXPECT_TRUE(segments().lacks_descriptor());
    }
    ASSERT_TRUE(read());
    EXPECT_TRUE(segments().lacks_descriptor());
    EXPECT_FALSE(segments().knows(0));
  }
  ASSERT_TRUE(read());
  EXPECT_FALSE(segments().lacks_descriptor());
  EXPECT_FALSE(failure_in(0));
  EXPECT_FALSE(failure_in(1));
}

TEST_F(PeerSegmentsTest, OneDescriptorIsEnoughToMapAny) {
  const std::vector made = {Segment::create(kPage, Writers::maker_and_peer).value(),
                            Segment::create(kPage, Writers::maker_and_peer).value()};
  const test::FewDescriptors one(1);
  for (std::uint32_t id = 0; id < 2; ++id) {
    ASSERT_TRUE(taken_in(one_slot(id), *made[id]));
    EXPECT_FALSE(segments().lacks_descriptor());
    EXPECT_FALSE(failure_in(id));
  }
}

}  // namespace
}  // namespace tendon::detail
