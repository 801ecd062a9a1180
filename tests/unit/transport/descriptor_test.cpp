// SPDX-License-Identifier: Apache-2.0
#include "transport/descriptor.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <tendon/session/limits.hpp>

namespace tendon::detail {
namespace {

constexpr std::uint64_t kCap = 1 << 20;

Descriptor message(std::uint64_t payload_bytes) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::bytes;
  descriptor.payload_bytes = payload_bytes;
  return descriptor;
}

// The bytes are wire contract, because two hosts and two versions read them.
TEST(Descriptor, HasTheBytesOfTheProtocol) {
  Descriptor descriptor;
  descriptor.kind = MessageKind::abort;
  descriptor.flags = Descriptor::kInline;
  descriptor.header_bytes = 0x0302;
  descriptor.pipe = 0x07060504;
  descriptor.sequence = 0x0f0e0d0c0b0a0908;
  descriptor.schema = 0x13121110;
  descriptor.tag = 0x17161514;
  descriptor.payload_bytes = 0x1f1e1d1c1b1a1918;
  descriptor.values_bytes = 0x23222120;
  descriptor.layout = Layout{0x24};
  descriptor.device_parts = 0x25;
  descriptor.reserved = {0x26, 0x27};
  descriptor.segment_or_inline_bytes = 0x2b2a2928;
  descriptor.slot = 0x2f2e2d2c;
  descriptor.generation = 0x3736353433323130;
  descriptor.offset = 0x3f3e3d3c3b3a3938;
  unsigned char bytes[64];
  std::memcpy(bytes, &descriptor, sizeof bytes);
  EXPECT_EQ(bytes[0], 8);
  EXPECT_EQ(bytes[1], 1);
  for (unsigned char i = 2; i < 64; ++i) EXPECT_EQ(bytes[i], i);
}

TEST(Descriptor, KindsHaveTheNumbersOfTheProtocol) {
  constexpr std::string_view kNames[] = {"unknown", "data",   "bytes",  "schema",  "segment",
                                         "credit",  "ack",    "end",    "abort",   "cancel",
                                         "ping",    "error",  "open",   "goodbye", "retire",
                                         "clock",   "device", "secure", "head"};
  for (std::uint8_t number = 0; number < std::size(kNames); ++number)
    EXPECT_EQ(to_string(MessageKind{number}), kNames[number]) << int{number};
  EXPECT_EQ(to_string(MessageKind{255}), "unknown");
}

// Their bytes are read in place, so they may not lie in a slot that the peer may write, or that
// cannot be mapped.
TEST(Descriptor, TheTextOfAnErrorAndWhatAnOpenSaysAreInline) {
  for (const MessageKind kind : {MessageKind::error, MessageKind::open}) {
    Descriptor said;
    said.kind = kind;
    said.pipe = 1;
    EXPECT_EQ(check_descriptor(said, kCap), "") << "without a body";
    said.header_bytes = 16;
    EXPECT_NE(check_descriptor(said, kCap), "");
    said.flags = Descriptor::kInline;
    said.segment_or_inline_bytes = 16;
    EXPECT_EQ(check_descriptor(said, kCap), "");
  }
}

TEST(Descriptor, AWordOfARenewalIsInlineAndBelongsToNoPipe) {
  Descriptor word;
  word.kind = MessageKind::secure;
  EXPECT_EQ(check_descriptor(word, kCap), "");
  word.payload_bytes = 16;
  EXPECT_NE(check_descriptor(word, kCap), "");
  word.flags = Descriptor::kInline;
  word.segment_or_inline_bytes = 16;
  EXPECT_EQ(check_descriptor(word, kCap), "");
  word.pipe = 1;
  EXPECT_EQ(check_descriptor(word, kCap), "a word about the link on a pipe");
  word.pipe = 0;
  word.payload_bytes = 0;
  word.header_bytes = 16;
  EXPECT_EQ(check_descriptor(word, kCap), "a word of a renewal with a header or values");
  word.header_bytes = 0;
  word.values_bytes = 16;
  EXPECT_EQ(check_descriptor(word, kCap), "a word of a renewal with a header or values");
}

TEST(Descriptor, AWordAboutTheLinkBelongsToNoPipe) {
  for (const MessageKind kind : {MessageKind::retire, MessageKind::clock, MessageKind::device}) {
    Descriptor word;
    word.kind = kind;
    EXPECT_EQ(check_descriptor(word, kCap), "");
    word.pipe = 1;
    EXPECT_EQ(check_descriptor(word, kCap), "a word about the link on a pipe");
    word.pipe = 0;
    word.values_bytes = 1;
    EXPECT_EQ(check_descriptor(word, kCap), "a control message with a body");
  }
}

TEST(Descriptor, EveryLimitHoldsAtTheLimitAndBreaksOneBeyond) {
  EXPECT_EQ(check_descriptor(message(kCap), kCap), "");
  EXPECT_NE(check_descriptor(message(kCap + 1), kCap), "");

  Descriptor descriptor = message(10);
  descriptor.header_bytes = kMaxMessageHeaderBytes;
  EXPECT_EQ(check_descriptor(descriptor, kCap), "");
  ++descriptor.header_bytes;
  EXPECT_EQ(check_descriptor(descriptor, kCap), "message header above its limit");

  descriptor = message(0);
  descriptor.values_bytes = kMaxValuesBytes;
  EXPECT_EQ(check_descriptor(descriptor, kCap), "");
  ++descriptor.values_bytes;
  EXPECT_EQ(check_descriptor(descriptor, 4 * kCap), "non-tensor data above its limit");

  descriptor = message(kCap - 10);
  descriptor.values_bytes = 6;
  descriptor.header_bytes = 4;
  EXPECT_EQ(check_descriptor(descriptor, kCap), "");
  ++descriptor.values_bytes;
  EXPECT_EQ(check_descriptor(descriptor, kCap), "message above the link's cap");

  descriptor = message(kMaxInlineBytes);
  descriptor.flags = Descriptor::kInline;
  descriptor.segment_or_inline_bytes = kMaxInlineBytes;
  EXPECT_EQ(check_descriptor(descriptor, kCap), "");
  ++descriptor.payload_bytes;
  ++descriptor.segment_or_inline_bytes;
  EXPECT_EQ(check_descriptor(descriptor, kCap), "inline body above its limit");
}

TEST(Descriptor, LengthsNearTheEndOfTheirTypeDoNotWrapAround) {
  Descriptor descriptor = message(~std::uint64_t{0});
  descriptor.header_bytes = 2;
  EXPECT_NE(check_descriptor(descriptor, kCap), "");
  descriptor.payload_bytes = ~std::uint64_t{0} - 1;
  descriptor.flags = Descriptor::kInline;
  EXPECT_NE(check_descriptor(descriptor, kCap), "");
}

TEST(Descriptor, RefusesWhatNoVersionSends) {
  Descriptor descriptor = message(10);
  descriptor.kind = MessageKind{0};
  EXPECT_EQ(check_descriptor(descriptor, kCap), "unknown message kind");
  descriptor = message(10);
  descriptor.flags = 0x80;
  EXPECT_EQ(check_descriptor(descriptor, kCap), "unknown flags");
  descriptor = message(10);
  descriptor.reserved[1] = 1;
  EXPECT_EQ(check_descriptor(descriptor, kCap), "reserved bytes are not zero");
  for (const Layout unknown : {Layout{}, Layout::safetensors, Layout{4}}) {
    descriptor = message(10);
    descriptor.kind = MessageKind::data;
    descriptor.layout = unknown;
    EXPECT_EQ(check_descriptor(descriptor, kCap), "unknown layout");
  }
  descriptor = message(10);
  descriptor.layout = Layout::aligned;  // of raw bytes
  EXPECT_EQ(check_descriptor(descriptor, kCap), "unknown layout");
  descriptor = message(10);
  descriptor.flags = Descriptor::kInline;
  descriptor.segment_or_inline_bytes = 9;
  EXPECT_EQ(check_descriptor(descriptor, kCap),
            "inline length differs from the lengths of its parts");
}

TEST(Descriptor, ControlMessagesHaveNoBodyAndCountsOfAnySize) {
  for (const MessageKind kind :
       {MessageKind::segment, MessageKind::credit, MessageKind::ack, MessageKind::end,
        MessageKind::abort, MessageKind::cancel, MessageKind::ping, MessageKind::goodbye}) {
    Descriptor descriptor = message(~std::uint64_t{0});
    descriptor.kind = kind;
    EXPECT_EQ(check_descriptor(descriptor, kCap), "") << to_string(kind);
    descriptor.header_bytes = 1;
    EXPECT_EQ(check_descriptor(descriptor, kCap), "a control message with a body")
        << to_string(kind);
    descriptor.header_bytes = 0;
    descriptor.flags = Descriptor::kInline;
    EXPECT_EQ(check_descriptor(descriptor, kCap), "a control message with a body")
        << to_string(kind);
  }
}

}  // namespace
}  // namespace tendon::detail
