// SPDX-License-Identifier: Apache-2.0
// The bytes of docs/protocol.md, "Groups": members of other builds read them. A change that makes
// this test fail needs a new version of the protocol.
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "group/boards/board.hpp"
#include "group/epochs/given_words.hpp"
#include "group/membership/agreement_wire.hpp"
#include "group/membership/envelope.hpp"
#include "group/operands/fingerprint.hpp"

namespace tendon::detail {
namespace {

static_assert(offsetof(Envelope, kind) == 0 && offsetof(Envelope, op) == 1);
static_assert(offsetof(Envelope, dtype) == 2 && offsetof(Envelope, reduce) == 3);
static_assert(offsetof(Envelope, from) == 4 && offsetof(Envelope, group) == 8);
static_assert(offsetof(Envelope, epoch) == 16 && offsetof(Envelope, sequence) == 24);
static_assert(offsetof(Envelope, count) == 32 && offsetof(Envelope, extra) == 40);
static_assert(offsetof(Envelope, tag) == 44 && sizeof(Envelope) == 48);

std::string hex(Bytes bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i != 0 && i % 8 == 0) text += ' ';
    text += kDigits[std::to_integer<unsigned>(bytes[i]) >> 4];
    text += kDigits[std::to_integer<unsigned>(bytes[i]) & 15];
  }
  return text;
}

TEST(GoldenEnvelope, HasTheBytesOfTheProtocol) {
  const Envelope envelope{.kind = EnvelopeKind::collective,
                          .op = static_cast<std::uint8_t>(CollectiveOp::all_reduce),
                          .dtype = 12,
                          .reduce = 1,
                          .from = GroupPlace{3},
                          .group = 0x1122334455667788,
                          .epoch = 0x10002,
                          .sequence = 5,
                          .count = 4096,
                          .extra = 6,
                          .tag = 0xa1b2c3d4};
  EXPECT_EQ(hex(bytes_of(envelope)),
            "08030c0103000000 8877665544332211 0200010000000000 "
            "0500000000000000 0010000000000000 06000000d4c3b2a1");
}

TEST(GoldenEnvelope, KindsHaveTheNumbersOfTheProtocolAndNoOthersAreRead) {
  Envelope envelope;
  for (unsigned number = 0; number < 256; ++number) {
    envelope.kind = static_cast<EnvelopeKind>(number);
    EXPECT_EQ(read_envelope(bytes_of(envelope)).has_value(), number >= 1 && number <= 10) << number;
  }
  EXPECT_EQ(detail::GivenWords::kWord, 1) << "the op of an abort that ends nothing";
  EXPECT_EQ(static_cast<int>(EnvelopeKind::join), 1);
  EXPECT_EQ(static_cast<int>(EnvelopeKind::ready), 5);
  EXPECT_EQ(static_cast<int>(EnvelopeKind::left), 10);
  envelope.kind = EnvelopeKind::hello;
  EXPECT_FALSE(read_envelope(bytes_of(envelope).first(47)));
}

TEST(GoldenAgreement, HasTheBytesOfTheProtocol) {
  AgreementMessage message;
  message.kind = AgreementMessage::Kind::promise;
  message.epoch = 7;
  message.ballot = {2, 1};
  message.mask.set(0);
  message.proved.set(9);
  message.accepted = AgreementMessage::Accepted{{1, 4}, {}};
  message.accepted->mask.set(255);
  const auto bytes = encode(message);
  EXPECT_EQ(hex(bytes),
            "0201000001000000 0700000000000000 0200000000000000 "  // kind, place; epoch; round
            "0100000000000000 0400000000000000 "                   // accepted
            "0100000000000000 0000000000000000 0000000000000000 0000000000000000 "
            "0002000000000000 0000000000000000 0000000000000000 0000000000000000 "
            "0000000000000000 0000000000000000 0000000000000000 0000000000000080");
  const auto back = decode_agreement(bytes, kMaxPlaces);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->ballot, message.ballot);
  EXPECT_EQ(back->accepted, message.accepted);
  EXPECT_EQ(back->proved, message.proved);

  AgreementMessage proposal;
  proposal.kind = AgreementMessage::Kind::propose;
  proposal.admitted.set(9);
  const auto proposed = encode(proposal);
  EXPECT_EQ(proposed[73], std::byte{2});
  EXPECT_EQ(decode_agreement(proposed, kMaxPlaces)->admitted, proposal.admitted);
  EXPECT_TRUE(decode_agreement(proposed, kMaxPlaces)->proved.none());
}

TEST(GoldenAgreement, OtherLengthsAndKindsAreRefused) {
  auto bytes = encode(AgreementMessage{});
  EXPECT_TRUE(decode_agreement(bytes, kMaxPlaces));
  EXPECT_FALSE(decode_agreement(Bytes(bytes).first(135), kMaxPlaces));
  bytes[0] = std::byte{7};
  EXPECT_FALSE(decode_agreement(bytes, kMaxPlaces));
}

TEST(GoldenAgreement, PlacesThatTheGroupHasNotAreRefused) {
  const auto decoded = [](const AgreementMessage& message, std::size_t places) {
    return decode_agreement(encode(message), places).has_value();
  };
  AgreementMessage message;
  message.mask.set(3);
  EXPECT_TRUE(decoded(message, 4));
  EXPECT_FALSE(decoded(message, 3));
  message = {};
  message.proved.set(200);
  EXPECT_FALSE(decoded(message, 200));
  message = {};
  message.kind = AgreementMessage::Kind::propose;
  message.admitted.set(200);
  EXPECT_FALSE(decoded(message, 4));
  message = {};
  message.accepted = AgreementMessage::Accepted{};
  message.accepted->mask.set(4);
  EXPECT_TRUE(decoded(message, 5));
  EXPECT_FALSE(decoded(message, 4));
}

TEST(GoldenBoard, HasTheBytesOfTheProtocol) {
  const auto board = Board::create(0x1122334455667788, 0x10000, 4, 2).value();
  const Segment& segment = *board->segment();
  ASSERT_EQ(segment.size_bytes(), 1052672u);
  EXPECT_EQ(hex({segment.data(), 32}),
            "544e444c494e4531 8877665544332211 0000010000000000 0200000004000000");
  Board::Line& line = board->mine(5);
  line.fingerprint = {.op = CollectiveOp::broadcast,
                      .dtype = 12,
                      .reduce = 9,
                      .history = 0xab,
                      .root = 1,
                      .size_bytes = 4096,
                      .shape_hash = 0xa1b2c3d4,
                      .sequence = 8};
  line.small[0] = std::byte{0xee};
  board->my_slot(5)[0] = std::byte{0xdd};
  board->publish(5);
  EXPECT_EQ(hex({segment.data() + 128 + 128, 40}),
            "0500000000000000 020c09ab01000000 0010000000000000 d4c3b2a108000000 ee00000000000000");
  EXPECT_EQ(segment.data()[4096 + 262144], std::byte{0xdd});
}

}  // namespace
}  // namespace tendon::detail
