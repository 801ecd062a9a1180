// SPDX-License-Identifier: Apache-2.0
#include "session/hello.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace tendon::detail;
using tendon::Bytes;
using tendon::Error;
using tendon::ErrorCode;
using tendon::PathKind;
using tendon::Profile;
using tendon::Result;
using testing::HasSubstr;

using Buffer = std::vector<std::byte>;

Nonce128 token_from(int first) {
  Nonce128 token;
  for (std::size_t i = 0; i < token.size(); ++i) {
    token[i] = static_cast<std::byte>(first + static_cast<int>(i));
  }
  return token;
}

HelloMessage hello_message() {
  HelloMessage message;
  message.version.minor = 1;  // as the golden bytes
  message.kind = HelloKind::hello;
  message.profile = Profile::local;
  message.context_id.bytes = token_from(0x10);
  message.incarnation = 2;
  message.pid = 4711;
  message.uid = 1000;
  message.host = "a";
  message.name = "learner";
  message.library_version = "0.1.0";
  message.boot_id = token_from(0x20);
  message.token = token_from(0x30);
  message.ticket = token_from(0x40);
  message.progress = ProgressMode::manual;
  message.reuse = Reuse::reuse;
  message.limits = LinkLimits{.link_cap_bytes = 1 << 30,
                              .window_messages = 256,
                              .window_bytes = 1 << 26,
                              .max_leaves = 65536,
                              .streams = 4};
  message.features = 5;
  return message;
}

HelloMessage attach_message() {
  HelloMessage message;
  message.version.minor = 1;  // as the golden bytes
  message.kind = HelloKind::attach;
  message.context_id.bytes = token_from(0x10);
  message.ticket = token_from(0x40);
  message.nonce = token_from(0x50);
  message.connection = "127.0.0.1:40312 > 127.0.0.1:7000";
  return message;
}

HelloMessage routed_message() {
  HelloMessage message;
  message.version.minor = 1;  // as the golden bytes
  message.kind = HelloKind::path;
  message.path = PathKind::routed;
  return message;
}

HelloMessage path_message() {
  HelloMessage message;
  message.version.minor = 1;  // as the golden bytes
  message.kind = HelloKind::path;
  message.ticket = token_from(0x40);
  message.path = PathKind::tcp;
  message.reason = "other host";
  return message;
}

HelloMessage ready_message() {
  HelloMessage message;
  message.version.minor = 1;  // as the golden bytes
  message.kind = HelloKind::ready;
  return message;
}

HelloMessage reject_message() {
  HelloMessage message;
  message.version.minor = 1;  // as the golden bytes
  message.kind = HelloKind::reject;
  message.error_code = 104;
  message.reason = "no";
  return message;
}

HelloMessage lane_message() {
  HelloMessage message;
  message.version.minor = 1;  // as the golden bytes
  message.kind = HelloKind::lane;
  message.context_id.bytes = token_from(0x10);
  message.ticket = token_from(0x40);
  message.lane_index = 3;
  return message;
}

// Today's frames must be readable forever. These bytes were written by hand from docs/protocol.md,
// not by the code under test.
struct Golden {
  HelloMessage message;
  const char* hex;
};
std::vector<Golden> golden_frames() {
  return {
      {hello_message(),
       "544e444e0100010001000000c900000001800100010280010001030010001011"
       "12131415161718191a1b1c1d1e1f040008000200000000000000050008006712"
       "00000000000006000400e80300000700010061080007006c6561726e65720900"
       "0500302e312e300a001000202122232425262728292a2b2c2d2e2f0b00100030"
       "3132333435363738393a3b3c3d3e3f0c001000404142434445464748494a4b4c"
       "4d4e4f0e000100020f8001000210001c00000000400000000000010000000000"
       "04000000000000010004000000110008000500000000000000"},
      {attach_message(),
       "544e444e01000100010000006500000001800100020300100010111213141516"
       "1718191a1b1c1d1e1f0c001000404142434445464748494a4b4c4d4e4f0d0010"
       "00505152535455565758595a5b5c5d5e5f160020003132372e302e302e313a34"
       "30333132203e203132372e302e302e313a37303030"},
      {path_message(),
       "544e444e01000100010000002c00000001800100030c00100040414243444546"
       "4748494a4b4c4d4e4f128001000213000a006f7468657220686f7374"},
      {routed_message(), "544e444e01000100010000000a00000001800100031280010003"},
      {ready_message(), "544e444e0100010001000000050000000180010004"},
      {reject_message(),
       "544e444e0100010001000000110000000180010005130002006e6f1400020068"
       "00"},
      {lane_message(),
       "544e444e01000100010000003500000001800100060300100010111213141516"
       "1718191a1b1c1d1e1f0c001000404142434445464748494a4b4c4d4e4f158004"
       "0003000000"},
  };
}

Buffer from_hex(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  Buffer bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

// A frame built by hand, which can break any rule.
class Frame {
 public:
  Frame& field(std::uint16_t type, Bytes value) {
    put(static_cast<std::uint16_t>(type));
    put(static_cast<std::uint16_t>(value.size()));
    body_.insert(body_.end(), value.begin(), value.end());
    return *this;
  }
  Frame& field(std::uint16_t type, std::string_view value) {
    return field(type, tendon::as_bytes(value));
  }
  template <class T>
    requires std::is_integral_v<T>
  Frame& field(std::uint16_t type, T value) {
    return field(type, std::as_bytes(std::span(&value, 1)));
  }
  Frame& version(std::uint16_t major, std::uint16_t minor, std::uint16_t min_major) {
    version_ = {major, minor, min_major};
    return *this;
  }
  Frame& reserved(std::uint16_t value) {
    version_[3] = value;
    return *this;
  }
  Frame& announced(std::uint32_t bytes) {
    announced_ = bytes;
    return *this;
  }
  Buffer bytes() const {
    Buffer all(16 + body_.size());
    std::memcpy(all.data(), "TNDN", 4);
    std::memcpy(all.data() + 4, version_.data(), 8);
    const auto length = announced_.value_or(static_cast<std::uint32_t>(body_.size()));
    std::memcpy(all.data() + 12, &length, 4);
    std::copy(body_.begin(), body_.end(), all.begin() + 16);
    return all;
  }
  Error error() const {
    const auto message = decode(bytes());
    EXPECT_FALSE(message);
    return message ? Error{} : message.error();
  }

 private:
  template <class T>
  void put(T value) {
    const auto raw = std::as_bytes(std::span(&value, 1));
    body_.insert(body_.end(), raw.begin(), raw.end());
  }
  Buffer body_;
  std::array<std::uint16_t, 4> version_{1, 1, 1, 0};
  std::optional<std::uint32_t> announced_;
};

Frame ready_frame() { return Frame().field(0x8001, std::uint8_t{4}); }

void expect_violation(const Error& error, std::string_view part) {
  EXPECT_EQ(error.code, ErrorCode::protocol_violation) << error.message();
  EXPECT_THAT(error.detail, HasSubstr(std::string(part)));
}

TEST(Hello, GoldenFrames) {
  for (const Golden& golden : golden_frames()) {
    SCOPED_TRACE(to_string(golden.message.kind));
    EXPECT_EQ(to_hex(encode(golden.message)), golden.hex);
    const auto decoded = decode(from_hex(golden.hex));
    ASSERT_TRUE(decoded) << decoded.error().detail;
    EXPECT_EQ(*decoded, golden.message);
  }
}

TEST(Hello, IdentityIsThatOfTheHello) {
  EXPECT_EQ(identity_of(hello_message()).to_string(), "learner (host a, pid 4711)");
  EXPECT_EQ(identity_of(hello_message()).context.bytes, token_from(0x10));
  EXPECT_EQ(identity_of(hello_message()).uid, 1000u);
  EXPECT_EQ(identity_of(hello_message()).incarnation, 2u);
}

TEST(Hello, TruncatedAtEachByteIsRefusedWholeAndAwaitedInPieces) {
  for (const Golden& golden : golden_frames()) {
    SCOPED_TRACE(to_string(golden.message.kind));
    const Buffer frame = from_hex(golden.hex);
    for (std::size_t size = 0; size < frame.size(); ++size) {
      const auto whole = decode(Bytes(frame).first(size));
      ASSERT_FALSE(whole) << size;
      EXPECT_EQ(whole.error().code, ErrorCode::protocol_violation);

      HelloReader reader;
      Bytes begin = Bytes(frame).first(size);
      const auto nothing = reader.on_bytes(begin);
      ASSERT_TRUE(nothing) << size;
      EXPECT_FALSE(nothing->has_value());
      EXPECT_EQ(reader.buffered_bytes(), size);
      Bytes rest = Bytes(frame).subspan(size);
      const auto message = reader.on_bytes(rest);
      ASSERT_TRUE(message) << size;
      EXPECT_EQ(message->value(), golden.message);
    }
  }
}

// The length in the header agrees, but the last field is cut.
TEST(Hello, FieldsCutInsideTheirFrameAreRefused) {
  for (const Golden& golden : golden_frames()) {
    const Buffer frame = from_hex(golden.hex);
    for (std::size_t size = 16; size < frame.size(); ++size) {
      Buffer cut(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(size));
      const auto length = static_cast<std::uint32_t>(size - 16);
      std::memcpy(cut.data() + 12, &length, 4);
      const auto message = decode(cut);
      // A cut between two fields is a shorter frame; it may only lack optional ones.
      if (message) {
        EXPECT_LT(encode(*message).size(), frame.size());
        EXPECT_EQ(encode(*message).size(), size);
      } else {
        EXPECT_EQ(message.error().code, ErrorCode::protocol_violation);
      }
    }
  }
}

TEST(Hello, BytesBehindTheFrameAreLeftToTheNextLayer) {
  Buffer stream = encode(path_message());
  const Buffer second = encode(ready_message());
  stream.insert(stream.end(), second.begin(), second.end());
  stream.push_back(std::byte{0x55});
  HelloReader reader;
  Bytes input(stream);
  EXPECT_EQ(reader.on_bytes(input).value().value(), path_message());
  EXPECT_EQ(input.size(), second.size() + 1);
  EXPECT_EQ(reader.on_bytes(input).value().value(), ready_message());
  ASSERT_EQ(input.size(), 1u);
  EXPECT_EQ(input[0], std::byte{0x55});
}

TEST(Hello, EveryRequiredFieldIsRequired) {
  const std::map<HelloKind, std::vector<std::pair<std::uint16_t, std::string>>> required = {
      {HelloKind::hello,
       {{0x8002, "profile"},
        {0x0003, "context id"},
        {0x0004, "incarnation"},
        {0x0005, "pid"},
        {0x0006, "uid"},
        {0x000E, "progress"},
        {0x0010, "limits"}}},
      {HelloKind::attach, {{0x000D, "nonce"}}},
      {HelloKind::path, {{0x8012, "path"}}},
      {HelloKind::ready, {}},
      {HelloKind::reject, {{0x0014, "error code"}}},
      {HelloKind::lane, {{0x0003, "context id"}, {0x000C, "ticket"}, {0x8015, "lane index"}}}};
  for (const Golden& golden : golden_frames()) {
    SCOPED_TRACE(to_string(golden.message.kind));
    const Buffer frame = from_hex(golden.hex);
    for (std::size_t at = 16; at < frame.size();) {
      std::uint16_t type = 0;
      std::uint16_t size = 0;
      std::memcpy(&type, frame.data() + at, 2);
      std::memcpy(&size, frame.data() + at + 2, 2);
      Buffer without(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(at));
      at += 4 + size;
      without.insert(without.end(), frame.begin() + static_cast<std::ptrdiff_t>(at), frame.end());
      const auto length = static_cast<std::uint32_t>(without.size() - 16);
      std::memcpy(without.data() + 12, &length, 4);

      const auto message = decode(without);
      const std::string* name = nullptr;
      static const std::string kind_name = "kind";
      if (type == 0x8001) name = &kind_name;
      for (const auto& [one, its_name] : required.at(golden.message.kind)) {
        if (one == type) name = &its_name;
      }
      EXPECT_EQ(message.has_value(), name == nullptr) << "type " << type;
      if (!message && name != nullptr) {
        expect_violation(message.error(), "lacks its field '" + *name + "'");
      }
    }
  }
}

TEST(Hello, TextsAtTheirCapAndOneBeyond) {
  struct Case {
    std::uint16_t type;
    std::size_t max_bytes;
    std::string HelloMessage::*member;
  };
  for (const Case& one :
       {Case{0x0007, tendon::kMaxIdentityTextBytes, &HelloMessage::host},
        Case{0x0008, tendon::kMaxIdentityTextBytes, &HelloMessage::name},
        Case{0x0009, tendon::kMaxVersionTextBytes, &HelloMessage::library_version},
        Case{0x0016, tendon::kMaxConnectionTextBytes, &HelloMessage::connection},
        Case{0x0013, tendon::kMaxReasonBytes, &HelloMessage::reason}}) {
    SCOPED_TRACE(one.type);
    const std::string longest(one.max_bytes, 'x');
    const auto whole = decode(ready_frame().field(one.type, longest).bytes());
    ASSERT_TRUE(whole) << whole.error().detail;
    EXPECT_EQ((*whole).*one.member, longest);
    expect_violation(
        ready_frame().field(one.type, longest + "x").error(),
        std::to_string(one.max_bytes + 1) + " bytes; legal: 1-" + std::to_string(one.max_bytes));
    expect_violation(ready_frame().field(one.type, "").error(), "0 bytes; legal: 1-");

    HelloMessage message = ready_message();
    message.*one.member = longest + "x";
    EXPECT_EQ(decode(encode(message)).value().*one.member, longest) << "the writer cuts";
  }
}

TEST(Hello, TextsAreUtf8WithoutControls) {
  for (const std::string good : {"h\xC3\xB6st", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xC2\xA0",
                                 "\xED\x9F\xBF", "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(decode(ready_frame().field(0x0008, good).bytes())) << good;
  }
  for (const std::string bad :
       {"\x1b[2J", "\n", "\x7f", "\xC2\x85", "\xC3", "\xC3(", "\x80", "\xC0\xAF", "\xC1\xBF",
        "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xE2\x82", "\xF0\x9F\x98", "\xFF"}) {
    expect_violation(ready_frame().field(0x0008, bad).error(), "'name' (type 0x0008) is not UTF-8");
    HelloMessage message = ready_message();
    message.name = "n" + bad;
    const auto written = decode(encode(message));
    ASSERT_TRUE(written) << written.error().detail;
    EXPECT_EQ(written->name.substr(0, 2), "n ") << "the writer puts a space";
  }
  expect_violation(ready_frame().field(0x0008, std::string_view("a\0b", 3)).error(), "UTF-8");
}

TEST(Hello, WhatCannotBeSeenInATextBecomesASpace) {
  for (const std::string hidden : {"\u202e", "\u200b", "\ufeff", "\u2028", "\U000e0041"}) {
    const auto message = decode(ready_frame().field(0x0008, "a" + hidden + "z").bytes());
    ASSERT_TRUE(message) << message.error().detail;
    EXPECT_EQ(message->name, "a z");
  }
}

TEST(Hello, TheWriterCutsAtACharacter) {
  HelloMessage message = ready_message();
  message.name = std::string(tendon::kMaxIdentityTextBytes - 1, 'x') + "\xC3\xB6";
  EXPECT_EQ(decode(encode(message)).value().name,
            std::string(tendon::kMaxIdentityTextBytes - 1, 'x'));
}

TEST(Hello, NumbersHaveTheirExactSize) {
  const std::map<std::uint16_t, std::size_t> sizes = {
      {0x8001, 1},  {0x8002, 1},  {0x0003, 16}, {0x0004, 8},  {0x0005, 8}, {0x0006, 4},
      {0x000A, 16}, {0x000B, 16}, {0x000C, 16}, {0x000D, 16}, {0x000E, 1}, {0x800F, 1},
      {0x0010, 28}, {0x0011, 8},  {0x8012, 1},  {0x0014, 2},  {0x8015, 4}};
  for (const auto& [type, size] : sizes) {
    SCOPED_TRACE(type);
    for (const std::size_t wrong : {size - 1, size + 1, std::size_t{0}}) {
      const Buffer value(wrong, std::byte{1});
      const Frame frame = type == 0x8001 ? Frame().field(type, Bytes(value))
                                         : ready_frame().field(type, Bytes(value));
      expect_violation(frame.error(),
                       " has " + std::to_string(wrong) + " bytes; legal: " + std::to_string(size));
    }
    const Buffer value(size, std::byte{1});
    if (type != 0x8001) {
      EXPECT_TRUE(decode(ready_frame().field(type, Bytes(value)).bytes()));
    }
  }
}

TEST(Hello, ChoicesOutsideTheirRangeAreRefused) {
  struct Case {
    std::uint16_t type;
    std::uint8_t least;
    std::uint8_t greatest;
  };
  for (const Case& one : {Case{0x8001, 1, 6}, Case{0x8002, 1, 3}, Case{0x000E, 1, 2},
                          Case{0x800F, 1, 2}, Case{0x8012, 1, 3}}) {
    SCOPED_TRACE(one.type);
    for (int value = 0; value < 256; ++value) {
      Frame frame = one.type == 0x8001 ? Frame() : ready_frame();
      const auto message = decode(frame.field(one.type, static_cast<std::uint8_t>(value)).bytes());
      const bool is_legal = value >= one.least && value <= one.greatest;
      if (message) {
        EXPECT_TRUE(is_legal) << value;
      } else if (is_legal) {
        EXPECT_THAT(message.error().detail, HasSubstr("lacks its")) << value;
      } else {
        expect_violation(message.error(), " is " + std::to_string(value) + "; legal: 1 (");
      }
    }
  }
  expect_violation(ready_frame().field(0x0014, std::uint16_t{0}).error(), "is 0; legal: 1-65535");
}

TEST(Hello, AllZeroTokensAndLimitsAreRefused) {
  const Nonce128 zero{};
  for (const std::uint16_t type : {0x0003, 0x000A, 0x000B, 0x000C, 0x000D}) {
    expect_violation(ready_frame().field(type, Bytes(zero)).error(), "is all zero");
  }
  const std::array<std::pair<std::size_t, std::size_t>, 5> members = {
      {{0, 8}, {8, 4}, {12, 8}, {20, 4}, {24, 4}}};
  for (const auto& [offset, size] : members) {
    Buffer limits(28, std::byte{1});
    EXPECT_TRUE(decode(ready_frame().field(0x0010, Bytes(limits)).bytes()));
    std::memset(limits.data() + offset, 0, size);
    expect_violation(ready_frame().field(0x0010, Bytes(limits)).error(), "holds a zero");
  }
}

TEST(Hello, ALinkCapThatWouldOverflowIsRefused) {
  for (const std::uint64_t cap : {tendon::kMaxPeerCapBytes + 1, ~std::uint64_t{0}}) {
    Buffer limits(28, std::byte{1});
    std::memcpy(limits.data(), &cap, sizeof cap);
    expect_violation(ready_frame().field(0x0010, Bytes(limits)).error(),
                     "a link cap of " + std::to_string(cap));
  }
}

TEST(Hello, ExtremeNumbersTravel) {
  HelloMessage message = hello_message();
  message.incarnation = std::numeric_limits<std::uint64_t>::max();
  message.pid = std::numeric_limits<std::int64_t>::min();
  message.uid = std::numeric_limits<std::uint32_t>::max();
  message.features = std::numeric_limits<std::uint64_t>::max();
  message.limits = LinkLimits{.link_cap_bytes = tendon::kMaxPeerCapBytes,
                              .window_messages = std::numeric_limits<std::uint32_t>::max(),
                              .window_bytes = std::numeric_limits<std::uint64_t>::max(),
                              .max_leaves = std::numeric_limits<std::uint32_t>::max(),
                              .streams = std::numeric_limits<std::uint32_t>::max()};
  EXPECT_EQ(decode(encode(message)).value(), message);
  message = hello_message();
  message.pid = 0;
  message.uid = 0;
  message.incarnation = 0;
  EXPECT_EQ(decode(encode(message)).value(), message) << "required zeros are written";
}

TEST(Hello, DuplicatesAreRefused) {
  for (const Golden& golden : golden_frames()) {
    const Buffer frame = from_hex(golden.hex);
    for (std::size_t at = 16; at < frame.size();) {
      std::uint16_t size = 0;
      std::memcpy(&size, frame.data() + at + 2, 2);
      Buffer twice = frame;
      twice.insert(twice.end(), frame.begin() + static_cast<std::ptrdiff_t>(at),
                   frame.begin() + static_cast<std::ptrdiff_t>(at + 4 + size));
      const auto length = static_cast<std::uint32_t>(twice.size() - 16);
      std::memcpy(twice.data() + 12, &length, 4);
      const auto message = decode(twice);
      ASSERT_FALSE(message);
      expect_violation(message.error(), "comes twice");
      at += 4 + size;
    }
  }
}

TEST(Hello, UnknownFieldsAreSkippedUnlessCritical) {
  EXPECT_EQ(decode(ready_frame().field(0x7FFF, "new").field(0x7FFF, "new").bytes()).value(),
            ready_message());
  EXPECT_EQ(decode(ready_frame().field(0x0000, "").bytes()).value(), ready_message());
  expect_violation(ready_frame().field(0xFFFF, "new").error(), "critical field of type 0xffff");
  // The critical bit is part of the number: 0x0002 is not 0x8002.
  EXPECT_EQ(decode(ready_frame().field(0x0002, "zz").bytes()).value(), ready_message());
}

TEST(Hello, FieldsOfOtherKindsAreCheckedAndKept) {
  const auto message = decode(ready_frame().field(0x8015, std::uint32_t{7}).bytes());
  EXPECT_EQ(message.value().lane_index, 7u);
}

TEST(Hello, FieldLengthBeyondTheFrameIsRefused) {
  Buffer frame = ready_frame().field(0x0008, "name").bytes();
  frame[16 + 5 + 2] = std::byte{5};
  const auto message = decode(frame);
  ASSERT_FALSE(message);
  expect_violation(message.error(), "has 5 bytes and its frame only 4 more");
  frame[16 + 5 + 2] = frame[16 + 5 + 3] = std::byte{0xFF};
  EXPECT_THAT(decode(frame).error().detail, HasSubstr("has 65535 bytes and its frame only 4"));
}

TEST(Hello, FrameLengthAtTheCapAndOneBeyond) {
  const std::size_t room = tendon::kMaxHelloBytes - 16 - 5 - 4;
  const Buffer filler(room, std::byte{7});
  const Buffer frame = ready_frame().field(0x7000, Bytes(filler)).bytes();
  ASSERT_EQ(frame.size(), tendon::kMaxHelloBytes);
  EXPECT_TRUE(decode(frame));
  HelloReader reader;
  Bytes input(frame);
  EXPECT_TRUE(reader.on_bytes(input).value().has_value());

  for (const std::uint32_t beyond : {std::uint32_t{4081}, std::uint32_t{0xFFFFFFFF}}) {
    // Refused by the header alone: no byte of such a body is awaited.
    const Buffer head = Frame().announced(beyond).bytes();
    HelloReader refusing;
    Bytes some(head);
    const auto message = refusing.on_bytes(some);
    ASSERT_FALSE(message);
    expect_violation(message.error(), "announces " + std::to_string(beyond) +
                                          " bytes after its header; legal: 0-4080");
  }
}

TEST(Hello, AnEmptyFrameLacksItsKind) { expect_violation(Frame().error(), "'kind'"); }

TEST(Hello, ReservedMustBeZero) {
  expect_violation(ready_frame().reserved(1).error(), "reserved field of a frame is 1; legal: 0");
}

TEST(Hello, AnnouncedLengthMustBeThatOfTheFrame) {
  expect_violation(ready_frame().announced(4).error(), "announces 4 bytes");
  expect_violation(ready_frame().announced(6).error(), "announces 6 bytes");
}

TEST(Hello, WrongMagicIsJudgedByItsFourBytes) {
  HelloReader reader;
  const std::string_view text = "GET / HTTP/1.1\r\n";
  Bytes input = tendon::as_bytes(text.substr(0, 3));
  EXPECT_FALSE(reader.on_bytes(input).value().has_value());
  input = tendon::as_bytes(text.substr(3));
  const auto message = reader.on_bytes(input);
  ASSERT_FALSE(message);
  expect_violation(message.error(),
                   "does not speak Tendon's protocol but HTTP, as it seems (first bytes 47455420; "
                   "legal: 544e444e, \"TNDN\")");
  Bytes more = tendon::as_bytes("TNDN");
  EXPECT_FALSE(reader.on_bytes(more)) << "a reader that failed stays so";
  EXPECT_EQ(more.size(), 4u);
}

TEST(Hello, AnswersOfServersOfOtherProtocolsAreNamed) {
  constexpr std::pair<std::string_view, std::string_view> kAnswers[] = {
      {"HTTP/1.1 400 Bad Request\r\n", "HTTP"}, {"<!DOCTYPE HTML>\n<html>", "HTTP"},
      {"<!doctype html>\n<html>", "HTTP"},      {"<html><head></head>", "HTTP"},
      {"POST /x HTTP/1.1\r\n", "HTTP"},         {"PRI * HTTP/2.0\r\n\r\n", "HTTP/2"},
      {"SSH-2.0-OpenSSH_9.2\r\n", "SSH"},       {"220 mail ESMTP\r\n\r\n", "SMTP or FTP"}};
  for (const auto& [answer, name] : kAnswers) {
    HelloReader reader;
    Bytes input = tendon::as_bytes(answer);
    const auto message = reader.on_bytes(input);
    ASSERT_FALSE(message) << answer;
    expect_violation(message.error(), "but " + std::string(name) + ", as it seems");
    EXPECT_EQ(message.error().remedy(), tendon::Remedy::use_another);
  }
}

// A listener has answered with an alert; a ClientHello is of a peer that has dialled.
TEST(Hello, TlsIsOfAListenerOrOfAConnectionByItsFirstByte) {
  using namespace std::string_view_literals;
  constexpr std::pair<std::string_view, std::string_view> kSaid[] = {
      {"\x15\x03\x03\x00\x02\x02\x0a"sv, "a secure listener of Tendon does so, and wants a key"},
      {"\x16\x03\x01\x00\xf0\x01"sv, "and this listener has none: use the same key on both ends"}};
  for (const auto& [said, why] : kSaid) {
    HelloReader reader;
    Bytes input = tendon::as_bytes(said);
    const auto message = reader.on_bytes(input);
    ASSERT_FALSE(message);
    expect_violation(message.error(), std::string("but TLS, as it seems: "));
    expect_violation(message.error(), why);
  }
}

TEST(Hello, MinorsNeverSeparate) {
  for (const std::uint16_t minor : {std::uint16_t{0}, std::uint16_t{1}, std::uint16_t{65535}}) {
    const auto message = decode(ready_frame().version(1, minor, 1).field(0x7001, "x").bytes());
    ASSERT_TRUE(message) << message.error().detail;
    EXPECT_EQ(message->version.minor, minor);
  }
}

TEST(Hello, OtherMajorsAreRefusedUnlessTheySpeakOurs) {
  EXPECT_TRUE(decode(ready_frame().version(2, 0, 1).bytes()));
  const Error newer = ready_frame().version(3, 4, 2).error();
  EXPECT_EQ(newer.code, ErrorCode::version_mismatch);
  EXPECT_THAT(newer.detail, HasSubstr("peer speaks version 2 to 3.4"));
  EXPECT_THAT(newer.detail, HasSubstr("this build (0.1.0) version 1.2"));
  const Error older = ready_frame().version(0, 9, 0).error();
  EXPECT_EQ(older.code, ErrorCode::version_mismatch);
  EXPECT_THAT(older.detail, HasSubstr("peer speaks version 0.9"));
  expect_violation(ready_frame().version(1, 0, 2).error(), "no range");
  // Another major may define all later bytes differently, so the error is about its version.
  EXPECT_EQ(ready_frame().version(2, 0, 2).reserved(1).announced(0xFFFFFFFF).error().code,
            ErrorCode::version_mismatch);
}

TEST(Hello, MajorsAgreeOnTheHighestBothSpeak) {
  const auto agreed = [](ProtocolVersion ours, ProtocolVersion theirs) {
    const auto major = agree_on_major(ours, theirs);
    return major ? static_cast<int>(*major) : -1;
  };
  EXPECT_EQ(agreed({1, 0, 1}, {1, 9, 1}), 1);
  EXPECT_EQ(agreed({3, 0, 2}, {2, 9, 1}), 2);
  EXPECT_EQ(agreed({2, 0, 1}, {3, 0, 2}), 2);
  EXPECT_EQ(agreed({3, 0, 3}, {2, 0, 1}), -1);
  EXPECT_EQ(agreed({2, 0, 1}, {3, 0, 3}), -1);
}

TEST(Hello, RejectionsCarryTheError) {
  const Error error{ErrorCode::permission_denied, "x.y", "uid 7 may not", 0};
  const auto frame = decode(encode(rejection_of(error)));
  ASSERT_TRUE(frame);
  const Error arrived = error_of(*frame);
  EXPECT_EQ(arrived.code, ErrorCode::permission_denied);
  EXPECT_EQ(arrived.detail, "the peer refused: uid 7 may not");
}

TEST(Hello, APeerCannotChooseAnyErrorItLikes) {
  HelloMessage message = reject_message();
  // The first three would describe this process, or suggest that it simply call again.
  for (const auto code : {ErrorCode::timeout, ErrorCode::busy, ErrorCode::context_closed,
                          ErrorCode::end_of_stream, ErrorCode::internal, ErrorCode::corrupt_data}) {
    message.error_code = static_cast<std::uint16_t>(code);
    EXPECT_EQ(error_of(message).code, ErrorCode::unreachable);
    EXPECT_THAT(error_of(message).detail, HasSubstr(tendon::error_id(code)));
  }
  message.error_code = 9999;
  EXPECT_EQ(error_of(message).detail, "the peer refused: no (TD-E9999)");
}

// Any bytes, cut anywhere, yield the same messages or the same error as in one piece.
TEST(Hello, SplitsChangeNothing) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto frames = golden_frames();
  const auto read_all = [](Bytes stream, auto next_size) {
    HelloReader reader;
    std::string log;
    while (!stream.empty()) {
      Bytes piece = stream.first(std::min(stream.size(), next_size()));
      stream = stream.subspan(piece.size());
      while (!piece.empty()) {
        const auto message = reader.on_bytes(piece);
        if (!message) return log + message.error().detail;
        if (*message) log += to_hex(encode(**message)) + "\n";
      }
    }
    return log + std::to_string(reader.buffered_bytes());
  };
  int failures = 0;
  for (int round = 0; round < 2000; ++round) {
    Buffer stream;
    for (int i = 0; i < 3; ++i) {
      const Buffer frame = from_hex(frames[random() % frames.size()].hex);
      stream.insert(stream.end(), frame.begin(), frame.end());
    }
    for (unsigned i = random() % 3; i > 0; --i) {
      stream[random() % stream.size()] ^= static_cast<std::byte>(1u << random() % 8);
    }
    const std::string whole = read_all(stream, [&] { return stream.size(); });
    const std::string split = read_all(stream, [&] { return std::size_t{1} + random() % 40; });
    ASSERT_EQ(whole, split);
    failures += whole.find("legal") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(failures, 0) << "some streams must be broken for this to mean anything";
}

}  // namespace
