// SPDX-License-Identifier: Apache-2.0
// The bytes that a tcp link writes: the examples of docs/protocol.md, "TCP".
#include <sys/socket.h>

#include <tendon/tensor/tensor.hpp>

#include "raw_peer.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> bytes;
  for (std::size_t at = 0; at + 1 < text.size();) {
    if (text[at] == ' ') {
      ++at;
      continue;
    }
    bytes.push_back(
        static_cast<std::byte>(std::stoi(std::string(text.substr(at, 2)), nullptr, 16)));
    at += 2;
  }
  return bytes;
}

constexpr std::string_view kHi =
    "02 01 00 00 01 00 00 00  01 00 00 00 00 00 00 00"
    " 00 00 00 00 03 00 00 00  02 00 00 00 00 00 00 00"
    " 00 00 00 00 00 00 00 00  02 00 00 00 00 00 00 00"
    " 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00"
    " 68 69";
constexpr std::string_view kFirstFrame =
    "01 00 00 00 e8 22 00 00  02 00 00 00 00 00 00 00"
    " 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00";
constexpr std::string_view kTail =
    "01 00 00 00 40 00 00 00  02 00 00 00 00 00 00 00"
    " e8 22 00 00 00 00 00 00  00 00 00 00 00 00 00 00";
constexpr std::string_view kAbort =
    "08 00 00 00 01 00 00 00  03 00 00 00 00 00 00 00"
    " 00 00 00 00 00 00 00 00  00 00 10 00 00 00 00 00"
    " 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00"
    " 00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00";

std::vector<std::byte> read_all(int fd) {
  std::vector<std::byte> all(4 << 20);
  std::size_t size = 0;
  for (ssize_t got = 0; (got = recv(fd, all.data() + size, all.size() - size, MSG_DONTWAIT)) > 0;)
    size += static_cast<std::size_t>(got);
  all.resize(size);
  return all;
}

TEST(TcpGolden, AnInlineMessage) {
  RawPeer peer;
  const std::string text = "hi";
  const BodyPart part{0, as_bytes(text), nullptr, 2};
  SendOp op;
  op.descriptor = bulk_message(1, 1, 2);
  op.descriptor.tag = 3;
  op.parts = {&part, 1};
  ASSERT_EQ(peer.end.link->send(op, 1s).value(), Sent::done);
  EXPECT_EQ(read_all(peer.control_fd()), from_hex(kHi));
  // The link also understands the same bytes.
  RecordingSink& sink = peer.end.attach(1);
  ASSERT_TRUE(peer.control(from_hex(kHi)));
  peer.settle();
  ASSERT_EQ(sink.received.size(), 1u);
  EXPECT_EQ(sink.received[0].descriptor.tag, 3u);
  EXPECT_EQ(as_text(Bytes(sink.body(0))), "hi");
}

TEST(TcpGolden, TheFramesOfABody) {
  RawPeer peer;
  OutgoingMessage message(1, 2, 9000, 1);
  ASSERT_EQ(peer.end.link->send(message.op(), 1s).value(), Sent::done);
  std::vector<std::byte> expected = from_hex(kFirstFrame);
  const auto& body = message.expected();
  expected.insert(expected.end(), body.begin(), body.begin() + 8936);
  const auto tail = from_hex(kTail);
  expected.insert(expected.end(), tail.begin(), tail.end());
  expected.insert(expected.end(), body.begin() + 8936, body.end());
  EXPECT_TRUE(read_all(peer.lane_fd(0)) == expected);
  RecordingSink& sink = peer.end.attach(1);
  ASSERT_TRUE(peer.control(bulk_message(1, 2, 9000)));
  ASSERT_TRUE(peer.bulk(expected));
  peer.settle();
  ASSERT_EQ(sink.complete_count(), 1u);
  EXPECT_TRUE(sink.body(0) == body);
}

TEST(TcpGolden, AnAbort) {
  RawPeer peer;
  OutgoingMessage message(1, 3, 32 << 20, 1);
  std::vector<std::byte> bulk;
  // Nobody reads: the kernel takes a part of the first frames.
  const auto sent = peer.end.link->send(message.op(), 1s);
  ASSERT_TRUE(succeeds(sent));
  ASSERT_EQ(*sent, Sent::later);
  EXPECT_TRUE(peer.end.link->withdraw(message.op()));
  std::vector<std::byte> control = read_all(peer.control_fd());
  ASSERT_EQ(control.size(), 2 * sizeof(Descriptor));
  // Its bytes 24 to 32 say how much of the body still arrives: as much as the kernel had room for.
  std::vector<std::byte> expected = from_hex(kAbort);
  std::uint64_t promised_bytes = 0;
  std::memcpy(&promised_bytes, control.data() + 64 + 24, sizeof promised_bytes);
  std::memcpy(expected.data() + 24, &promised_bytes, sizeof promised_bytes);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), control.begin() + 64));
  // The promised frames are finished with their original bytes, and nothing follows them.
  const std::vector<std::byte> original = message.expected();
  message.scribble();
  ASSERT_TRUE(eventually([&] { return peer.end.link->drained(); },
                         [&] {
                           const auto more = read_all(peer.lane_fd(0));
                           bulk.insert(bulk.end(), more.begin(), more.end());
                           peer.reactor.turn(1);
                         }));
  const auto more = read_all(peer.lane_fd(0));
  bulk.insert(bulk.end(), more.begin(), more.end());
  std::uint64_t body_bytes = 0;
  for (std::size_t at = 0; at < bulk.size();) {
    FrameHeader header;
    ASSERT_LE(at + sizeof header, bulk.size());
    std::memcpy(&header, bulk.data() + at, sizeof header);
    at += sizeof header;
    ASSERT_LE(at + header.length_bytes, bulk.size());
    EXPECT_TRUE(std::equal(bulk.begin() + static_cast<std::ptrdiff_t>(at),
                           bulk.begin() + static_cast<std::ptrdiff_t>(at + header.length_bytes),
                           original.begin() + static_cast<std::ptrdiff_t>(header.offset)))
        << header.offset;
    at += header.length_bytes;
    body_bytes += header.length_bytes;
  }
  EXPECT_GT(body_bytes, 0u);
  EXPECT_EQ(body_bytes, promised_bytes);
}

}  // namespace
}  // namespace tendon::test
