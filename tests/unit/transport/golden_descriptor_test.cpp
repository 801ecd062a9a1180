// SPDX-License-Identifier: Apache-2.0
// The bytes of docs/protocol.md, "Descriptor" and "Shared memory", which other builds and other
// processes read. A change that breaks this test needs a new version of the protocol.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "memory/slot_pool.hpp"
#include "transport/shm/control_block.hpp"
#include "transport/shm/shm_link.hpp"

namespace tendon::detail {
namespace {

// The layout of the control block. Both processes compile it in, and neither reads it from memory.
static_assert(offsetof(ControlBlock, magic) == 0);
static_assert(offsetof(ControlBlock, nonce) == 8);
static_assert(offsetof(ControlBlock, sleeping) == 128);
static_assert(offsetof(ControlBlock, beat) == 256);
static_assert(offsetof(ControlBlock, messages) == 384);
static_assert(offsetof(ControlBlock, returns) == 640);
static_assert(offsetof(RingCounters<SharedMemoryPolicy>, tail) == 0);
static_assert(offsetof(RingCounters<SharedMemoryPolicy>, head) == 128);
static_assert(sizeof(RingCounters<SharedMemoryPolicy>) == 256);
static_assert(offsetof(ControlBlock, message_entries) == 896);
static_assert(sizeof(ControlBlock::message_entries) == 1024 * 64);
static_assert(offsetof(ControlBlock, return_entries) == 66432);
static_assert(sizeof(ControlBlock::return_entries) == 8192 * 16);
static_assert(offsetof(ControlBlock, arena) == 197504);
static_assert(sizeof(ControlBlock::arena) == 262144);
static_assert(sizeof(ControlBlock) == 459648);
static_assert(offsetof(ReturnEntry, segment) == 0);
static_assert(offsetof(ReturnEntry, slot) == 4);
static_assert(offsetof(ReturnEntry, generation) == 8);
static_assert(SleepWord<>::kForMessages == 1 && SleepWord<>::kForReturns == 2);

template <class T>
std::string hex(const T& value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::array<unsigned char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &value, sizeof value);
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i != 0 && i % 8 == 0) text += ' ';
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

TEST(GoldenControlBlock, BeginsWithMagicAndNonce) {
  Nonce128 nonce;
  for (std::size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<std::byte>(0xa0 + i);
  const auto segment = make_control_segment(nonce).value();
  EXPECT_EQ(segment->size_bytes(), 462848u);
  std::array<std::byte, 24> head;
  std::memcpy(head.data(), segment->data(), head.size());
  EXPECT_EQ(hex(head), "544e444e424c4b31 a0a1a2a3a4a5a6a7 a8a9aaabacadaeaf");
}

struct Golden {
  MessageKind kind;
  std::string_view bytes;
};

// A descriptor with exactly the fields that a sender sets for each kind.
Descriptor example(MessageKind kind) {
  Descriptor descriptor;
  descriptor.kind = kind;
  descriptor.pipe = 3;
  descriptor.sequence = 9;
  const auto make_inline = [&](std::uint32_t bytes) {
    descriptor.flags = Descriptor::kInline;
    descriptor.segment_or_inline_bytes = bytes;
  };
  switch (kind) {
    case MessageKind::data:
      descriptor.schema = 1;
      descriptor.payload_bytes = 100;
      descriptor.values_bytes = 20;
      descriptor.layout = Layout::aligned;
      make_inline(120);
      break;
    case MessageKind::bytes:
      descriptor.tag = 0x11223344;
      descriptor.header_bytes = 4;
      descriptor.payload_bytes = 1 << 20;
      descriptor.segment_or_inline_bytes = 2;
      descriptor.slot = 7;
      descriptor.generation = 0x0102030405060708;
      break;
    case MessageKind::schema:
      descriptor.schema = 65;
      descriptor.payload_bytes = 31;
      make_inline(31);
      descriptor.offset = 0x3ffc0;
      break;
    case MessageKind::segment:
      descriptor.pipe = 0;
      descriptor.sequence = 0;
      descriptor.segment_or_inline_bytes = 1;
      descriptor.slot = 64;
      descriptor.payload_bytes = 32768;
      break;
    case MessageKind::credit:
      descriptor.sequence = 64;
      descriptor.payload_bytes = 0x123456789a;
      break;
    case MessageKind::ack:
    case MessageKind::cancel:
    case MessageKind::ping:
    case MessageKind::head:
      break;
    case MessageKind::end:
      descriptor.tag = 1;
      break;
    case MessageKind::abort:
      descriptor.payload_bytes = 1 << 20;
      break;
    case MessageKind::error:
      descriptor.tag = 108;
      descriptor.payload_bytes = 4;
      make_inline(4);
      break;
    case MessageKind::open:
      descriptor.sequence = 0;
      descriptor.header_bytes = 16;
      make_inline(16);
      break;
    case MessageKind::goodbye:
    case MessageKind::retire:
      descriptor.pipe = 0;
      descriptor.sequence = 0;
      break;
    case MessageKind::clock:
      descriptor.pipe = 0;
      descriptor.sequence = 0x0102030405060708;
      descriptor.tag = 1;
      descriptor.generation = 0x1112131415161718;
      descriptor.offset = 0x2122232425262728;
      break;
    case MessageKind::device:
      descriptor.pipe = 0;
      descriptor.sequence = 0;
      descriptor.tag = 1;
      descriptor.schema = 2;
      descriptor.generation = 0x1112131415161718;
      descriptor.offset = 0x2122232425262728;
      break;
    case MessageKind::secure:
      descriptor.pipe = 0;
      descriptor.sequence = 0;
      descriptor.tag = 3;
      descriptor.payload_bytes = 4;
      make_inline(4);
      break;
  }
  return descriptor;
}

constexpr Golden kGolden[] = {
    {MessageKind::data,
     "0101000003000000 0900000000000000 0100000000000000 6400000000000000 "
     "1400000001000000 7800000000000000 0000000000000000 0000000000000000"},
    {MessageKind::bytes,
     "0200040003000000 0900000000000000 0000000044332211 0000100000000000 "
     "0000000000000000 0200000007000000 0807060504030201 0000000000000000"},
    {MessageKind::schema,
     "0301000003000000 0900000000000000 4100000000000000 1f00000000000000 "
     "0000000000000000 1f00000000000000 0000000000000000 c0ff030000000000"},
    {MessageKind::segment,
     "0400000000000000 0000000000000000 0000000000000000 0080000000000000 "
     "0000000000000000 0100000040000000 0000000000000000 0000000000000000"},
    {MessageKind::credit,
     "0500000003000000 4000000000000000 0000000000000000 9a78563412000000 "
     "0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
    {MessageKind::ack,
     "0600000003000000 0900000000000000 0000000000000000 0000000000000000 "
     "0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
    {MessageKind::end,
     "0700000003000000 0900000000000000 0000000001000000 0000000000000000 "
     "0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
    {MessageKind::abort,
     "0800000003000000 0900000000000000 0000000000000000 0000100000000000 "
     "0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
    {MessageKind::cancel,
     "0900000003000000 0900000000000000 0000000000000000 0000000000000000 "
     "0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
    {MessageKind::ping,
     "0a00000003000000 0900000000000000 0000000000000000 0000000000000000 "
     "0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
    {MessageKind::error,
     "0b01000003000000 0900000000000000 000000006c000000 0400000000000000 "
     "0000000000000000 0400000000000000 0000000000000000 0000000000000000"},
    {MessageKind::open,
     "0c01100003000000 0000000000000000 0000000000000000 0000000000000000 "
     "0000000000000000 1000000000000000 0000000000000000 0000000000000000"},
    {MessageKind::goodbye,
     "0d00000000000000 0000000000000000 0000000000000000 0000000000000000 "
     "0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
    {MessageKind::retire,
     "0e00000000000000 0000000000000000 0000000000000000 0000000000000000 "
     "0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
    {MessageKind::clock,
     "0f00000000000000 0807060504030201 0000000001000000 0000000000000000 "
     "0000000000000000 0000000000000000 1817161514131211 2827262524232221"},
    {MessageKind::device,
     "1000000000000000 0000000000000000 0200000001000000 0000000000000000 "
     "0000000000000000 0000000000000000 1817161514131211 2827262524232221"},
    {MessageKind::secure,
     "1101000000000000 0000000000000000 0000000003000000 0400000000000000 "
     "0000000000000000 0400000000000000 0000000000000000 0000000000000000"},
    {MessageKind::head,
     "1200000003000000 0900000000000000 0000000000000000 0000000000000000 "
     "0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
};

TEST(GoldenDescriptor, OfEachKind) {
  constexpr std::uint64_t kCapBytes = 1 << 30;
  for (const Golden& golden : kGolden) {
    const Descriptor descriptor = example(golden.kind);
    EXPECT_EQ(hex(descriptor), golden.bytes) << to_string(golden.kind);
    EXPECT_EQ(check_descriptor(descriptor, kCapBytes), "") << to_string(golden.kind);
  }
  EXPECT_EQ(std::size(kGolden), 18u);
  for (unsigned kind = 0; kind < 256; ++kind) {
    const bool is_golden = std::ranges::any_of(
        kGolden, [&](const Golden& golden) { return golden.kind == MessageKind(kind); });
    EXPECT_EQ(to_string(MessageKind(kind)) != "unknown", is_golden) << kind;
  }
}

// One side of a link; the test reads its output as the other process would.
class GoldenShmLink : public testing::Test {
 protected:
  GoldenShmLink() {
    std::array<int, 2> sockets;
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets.data()),
              0);
    other_end_ = OwnedFd(sockets[1]);
    mine_ = make_control_segment(random_nonce().value()).value();
    theirs_ = make_control_segment(random_nonce().value()).value();
    link_ = make_shm_link(
                {.path = {PathKind::shm, "test"},
                 .peer = {},
                 .cap_bytes = 64 << 20,
                 .peer_cap_bytes = 64 << 20,
                 .socket = OwnedFd(sockets[0]),
                 .mine = mine_,
                 .theirs = theirs_,
                 .peer_doorbell = OwnedFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
                 .peer_process = OwnedFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)))})
                .value();
  }
  [[nodiscard]] ControlBlock& block() const {
    return *reinterpret_cast<ControlBlock*>(mine_->data());
  }
  [[nodiscard]] std::string tail_of_messages() const {
    return hex(*reinterpret_cast<const std::uint64_t*>(mine_->data() + 384));
  }
  void send(const Descriptor& descriptor, Bytes payload) const {
    const BodyPart part{0, payload, nullptr, payload.size()};
    SendOp op;
    op.descriptor = descriptor;
    op.descriptor.payload_bytes = payload.size();
    op.parts = {&part, 1};
    ASSERT_EQ(link_->send(op, Deadline::now()).value(), Sent::done);
  }

  OwnedFd other_end_;
  std::shared_ptr<Segment> mine_;
  std::shared_ptr<Segment> theirs_;
  std::shared_ptr<Link> link_;
};

TEST_F(GoldenShmLink, WritesInlineBodiesToTheArena) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.pipe = 1;
  descriptor.tag = 5;
  descriptor.sequence = 1;
  send(descriptor, as_bytes("hello"));
  descriptor.sequence = 2;
  send(descriptor, as_bytes("world"));
  EXPECT_EQ(tail_of_messages(), "0200000000000000");
  EXPECT_EQ(hex(block().message_entries[0]),
            "0201000001000000 0100000000000000 0000000005000000 0500000000000000 "
            "0000000000000000 0500000000000000 0000000000000000 0000000000000000");
  EXPECT_EQ(hex(block().message_entries[1]),
            "0201000001000000 0200000000000000 0000000005000000 0500000000000000 "
            "0000000000000000 0500000000000000 0000000000000000 4000000000000000");
  EXPECT_EQ(std::memcmp(mine_->data() + 197504, "hello", 5), 0);
  EXPECT_EQ(std::memcmp(mine_->data() + 197504 + 64, "world", 5), 0);
}

TEST_F(GoldenShmLink, AnnouncesASegmentBeforeTheFirstSlotOfIt) {
  const std::vector<std::byte> payload(20000, std::byte{0x5a});
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.pipe = 1;
  descriptor.sequence = 1;
  send(descriptor, payload);

  Descriptor announcement;
  iovec io{&announcement, sizeof announcement};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ASSERT_EQ(TEMP_FAILURE_RETRY(recvmsg(other_end_.get(), &message, MSG_CMSG_CLOEXEC)), 64);
  EXPECT_EQ(hex(announcement),
            "0400000000000000 0000000000000000 0000000000000000 0080000000000000 "
            "0000000000000000 0000000040000000 0000000000000000 0000000000000000");
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  ASSERT_NE(header, nullptr);
  ASSERT_EQ(header->cmsg_len, CMSG_LEN(sizeof(int)));
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  const auto slots = Segment::attach(OwnedFd(fd), 64 * 32768).value();

  const Descriptor& entry = block().message_entries[0];
  EXPECT_EQ(hex(entry),
            "0200000001000000 0100000000000000 0000000000000000 204e000000000000 "
            "0000000000000000 0000000000000000 0100000000000000 0000000000000000");
  EXPECT_EQ(std::memcmp(slots->data() + entry.slot * 32768ull, payload.data(), payload.size()), 0);
}

TEST_F(GoldenShmLink, GivesSlotsBackByReturnEntries) {
  // The peer announces one segment of two slots and sends the second of them.
  const auto slots = Segment::create(2 * 32768).value();
  Descriptor announcement;
  announcement.kind = MessageKind::segment;
  announcement.slot = 2;
  announcement.payload_bytes = 32768;
  iovec io{&announcement, sizeof announcement};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = slots->fd();
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  ASSERT_EQ(sendmsg(other_end_.get(), &message, MSG_NOSIGNAL), 64);

  auto& peer = *reinterpret_cast<ControlBlock*>(theirs_->data());
  Descriptor& entry = peer.message_entries[0];
  entry.kind = MessageKind::bytes;
  entry.pipe = 1;
  entry.sequence = 1;
  entry.payload_bytes = 20000;
  entry.slot = 1;
  entry.generation = 0x1122334455667788;
  peer.messages.tail.store(1, std::memory_order_release);

  // Nobody is attached to pipe 1, so the message is dropped, and its slot returned at once.
  {
    std::lock_guard receiving(link_->receive_mutex());
    EXPECT_TRUE(link_->poll());
  }
  EXPECT_FALSE(link_->ended()) << link_->end_error().detail;
  EXPECT_EQ(link_->stats().dropped_messages, 1u);
  EXPECT_EQ(peer.messages.head.load(), 1u);
  EXPECT_EQ(hex(block().return_entries[0]), "0000000001000000 8877665544332211");
  EXPECT_EQ(block().returns.tail.load(), 1u);
}

}  // namespace
}  // namespace tendon::detail
