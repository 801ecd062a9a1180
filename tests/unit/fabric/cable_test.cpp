// SPDX-License-Identifier: Apache-2.0
#include "fabric/ways/cable.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "fabric/ways/cables.hpp"
#include "support/expect.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail;
using testing::HasSubstr;
using State = Cable::State;
using Verdict = Cable::Verdict;

constexpr std::uint64_t kFirstLimit = 8192;
constexpr Nonce128 kConnection{std::byte{7}};
const CableKey kKey = [] {
  CableKey key{};
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(i);
  return key;
}();

Cable make(CableEnd end, const CableKey& key = kKey) {
  return Cable(kConnection, end, CableSeal::make(key).value(), kFirstLimit);
}

Bytes bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Storage say(Cable& cable, const std::string& text) {
  const MutableBytes room = cable.room().value();
  EXPECT_GE(room.size(), text.size());
  std::memcpy(room.data(), text.data(), text.size());
  return cable.data(text.size()).value();
}

Verdict hear(Cable& cable, const Storage& frame) {
  return cable.hear(read_cable_frame(frame.bytes()).value());
}

class CableEnds : public testing::Test {
 protected:
  Cable near_ = make(CableEnd::asker);
  Cable far_ = make(CableEnd::answerer);
};

TEST_F(CableEnds, CarryBytesBothWays) {
  const Storage there = say(near_, "there");
  EXPECT_EQ(hear(far_, there), Verdict::taken);
  EXPECT_EQ(text_of(read_cable_frame(there.bytes()).value().payload), "there");
  EXPECT_EQ(hear(near_, say(far_, "back")), Verdict::taken);
  EXPECT_EQ(hear(far_, near_.word().value()), Verdict::taken);
}

TEST_F(CableEnds, ALostFrameBreaksThem) {
  (void)say(near_, "lost");
  EXPECT_EQ(hear(far_, say(near_, "came")), Verdict::breaks_it);
  EXPECT_EQ(far_.state(), State::broken);
  EXPECT_THAT(far_.why_broken(), HasSubstr("0 to 0"));
  EXPECT_EQ(far_.may_send(), 0u);
}

TEST_F(CableEnds, ALostTailIsSeenByTheNextSignOfLife) {
  EXPECT_EQ(hear(far_, say(near_, "came")), Verdict::taken);
  (void)say(near_, "lost");
  EXPECT_EQ(hear(far_, near_.word().value()), Verdict::breaks_it);
}

TEST_F(CableEnds, FramesThatOvertakeBreakThem) {
  const Storage first = say(near_, "first");
  EXPECT_EQ(hear(far_, say(near_, "second")), Verdict::breaks_it);
  EXPECT_EQ(hear(far_, first), Verdict::dropped);
}

TEST_F(CableEnds, AFrameThatComesAgainIsDropped) {
  const Storage first = say(near_, "first");
  EXPECT_EQ(hear(far_, first), Verdict::taken);
  EXPECT_EQ(hear(far_, first), Verdict::dropped);
  EXPECT_EQ(far_.state(), State::open);
}

// The tag covers each byte of a frame, its direction and the key.
TEST_F(CableEnds, WhatStrangersWriteIsDropped) {
  const Storage good = say(near_, "genuine");
  for (std::size_t i = 0; i < good.size_bytes(); ++i) {
    std::string changed = text_of(good.bytes());
    changed[i] = static_cast<char>(changed[i] ^ 1);
    const auto frame = read_cable_frame(bytes_of(changed));
    if (frame) {
      EXPECT_EQ(far_.hear(*frame), Verdict::dropped) << "byte " << i;
    }
  }
  CableKey other = kKey;
  other[31] ^= std::byte{1};
  Cable stranger = make(CableEnd::asker, other);
  EXPECT_EQ(hear(far_, say(stranger, "forged")), Verdict::dropped);
  EXPECT_EQ(hear(near_, good), Verdict::dropped) << "its own frame, sent back";
  EXPECT_EQ(hear(far_, good), Verdict::taken);
}

TEST_F(CableEnds, SendNoMoreThanTheReaderGrants) {
  ASSERT_EQ(near_.may_send(), kFirstLimit);
  EXPECT_EQ(hear(far_, say(near_, std::string(kFirstLimit, 'x'))), Verdict::taken);
  EXPECT_EQ(near_.may_send(), 0u);
  EXPECT_EQ(far_.granted(), kFirstLimit);
  far_.grant(kFirstLimit);
  EXPECT_FALSE(far_.owes_word()) << "nothing was taken yet";
  far_.note_taken(kFirstLimit);
  far_.grant(kFirstLimit);
  ASSERT_TRUE(far_.owes_word());
  EXPECT_EQ(hear(near_, far_.word().value()), Verdict::taken);
  EXPECT_FALSE(far_.owes_word());
  EXPECT_EQ(near_.may_send(), kFirstLimit);
}

// The rest is under way: an unreported half of the window would halve the rate.
TEST_F(CableEnds, TellOfSmallPartsOfALargeWindow) {
  constexpr std::size_t kFrames = 16;
  constexpr std::uint64_t kWindow = kFrames * kMaxCablePayloadBytes;
  ASSERT_EQ(hear(far_, near_.word().value()), Verdict::taken);
  far_.grant(kWindow);
  ASSERT_EQ(hear(near_, far_.word().value()), Verdict::taken);
  std::vector<Storage> under_way;
  while (near_.may_send() != 0) under_way.push_back(say(near_, std::string(near_.may_send(), 'x')));
  ASSERT_EQ(under_way.size(), kFrames);
  std::size_t words = 0;
  for (const Storage& frame : under_way) {
    ASSERT_EQ(hear(far_, frame), Verdict::taken);
    far_.note_taken(kMaxCablePayloadBytes);
    far_.grant(kWindow);
    if (!far_.owes_word()) continue;
    ++words;
    ASSERT_EQ(hear(near_, far_.word().value()), Verdict::taken);
  }
  EXPECT_EQ(words, kFrames / 2);
}

// Before that the asker may not be listening, and a frame that it missed would be a gap.
TEST_F(CableEnds, TheAskerSpeaksFirst) {
  far_.grant(10 * kFirstLimit);
  EXPECT_EQ(far_.may_send(), 0u);
  EXPECT_FALSE(far_.owes_word());
  EXPECT_EQ(hear(far_, near_.word().value()), Verdict::taken);
  EXPECT_EQ(far_.may_send(), kFirstLimit);
  EXPECT_TRUE(far_.owes_word());
}

TEST_F(CableEnds, AFrameOfDataTakesAtMostItsCap) {
  far_.grant(10 * kMaxCablePayloadBytes);
  EXPECT_EQ(hear(near_, far_.word().value()), Verdict::taken);
  EXPECT_EQ(near_.may_send(), kMaxCablePayloadBytes);
  EXPECT_EQ(hear(far_, say(near_, std::string(kMaxCablePayloadBytes, 'x'))), Verdict::taken);
}

TEST_F(CableEnds, MoreThanWasGrantedBreaksThem) {
  Cable greedy(kConnection, CableEnd::asker, CableSeal::make(kKey).value(), 2 * kFirstLimit);
  EXPECT_EQ(hear(far_, say(greedy, std::string(kFirstLimit, 'x'))), Verdict::taken);
  EXPECT_EQ(hear(far_, say(greedy, "x")), Verdict::breaks_it);
  EXPECT_THAT(far_.why_broken(), HasSubstr("granted"));
}

TEST_F(CableEnds, EachDirectionEndsByItself) {
  EXPECT_EQ(hear(far_, near_.end().value()), Verdict::taken);
  EXPECT_EQ(near_.state(), State::ended_here);
  EXPECT_EQ(far_.state(), State::ended_there);
  EXPECT_EQ(near_.may_send(), 0u);
  EXPECT_EQ(hear(near_, say(far_, "still")), Verdict::taken);
  EXPECT_EQ(hear(near_, far_.end().value()), Verdict::taken);
  EXPECT_EQ(near_.state(), State::over);
  EXPECT_EQ(far_.state(), State::over);
}

TEST_F(CableEnds, NothingComesBehindAnEnd) {
  EXPECT_EQ(hear(far_, near_.end().value()), Verdict::taken);
  // Acts as a faulty peer, whose end was another one.
  Cable other = make(CableEnd::asker);
  (void)other.word();
  EXPECT_EQ(hear(far_, say(other, "more")), Verdict::breaks_it);
}

TEST_F(CableEnds, ACutEndsBothSides) {
  EXPECT_EQ(hear(far_, near_.cut().value()), Verdict::breaks_it);
  EXPECT_EQ(near_.state(), State::over);
  EXPECT_EQ(far_.state(), State::broken);
}

// Sends a stream of random pieces, with strangers' frames and replays between them: all bytes
// arrive as they left, and no more than was granted waits.
TEST_F(CableEnds, CarryAStreamAmongStrangers) {
  constexpr std::uint64_t kSeed = 20;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937_64 random(kSeed);
  std::string left;
  std::string came;
  std::vector<Storage> old;
  std::uint64_t waiting = 0;
  for (int step = 0; step < 2000; ++step) {
    if (const std::size_t most = near_.may_send(); most > 0 && random() % 2 == 0) {
      std::string piece(1 + random() % std::min<std::size_t>(most, 3000), 'a');
      for (char& c : piece) c = static_cast<char>(random());
      const Storage frame = say(near_, piece);
      left += piece;
      old.push_back(frame);
      ASSERT_EQ(hear(far_, frame), Verdict::taken);
      came += text_of(read_cable_frame(frame.bytes()).value().payload);
      waiting += piece.size();
      ASSERT_LE(waiting, far_.granted());
    }
    if (waiting > 0 && random() % 3 == 0) {
      const std::uint64_t taken = 1 + random() % waiting;
      far_.note_taken(taken);
      waiting -= taken;
      far_.grant(kFirstLimit + random() % 4096);
    }
    if (far_.owes_word()) {
      ASSERT_EQ(hear(near_, far_.word().value()), Verdict::taken);
    }
    if (!old.empty() && random() % 4 == 0) {
      ASSERT_EQ(hear(far_, old[random() % old.size()]), Verdict::dropped);
      std::string forged = text_of(old.back().bytes());
      forged[16] = static_cast<char>(forged[16] + 1);  // its sequence
      ASSERT_EQ(hear(far_, Storage(nullptr, reinterpret_cast<std::byte*>(forged.data()),
                                   forged.size(), Access::read_only)),
                Verdict::dropped);
    }
  }
  EXPECT_EQ(left, came);
  EXPECT_GT(left.size(), 50 * kFirstLimit / 8);
}

// ---- the window of a Context

TEST(CableWindow, IsSharedByAllCables) {
  EXPECT_EQ(Cables::share(Lane::control, 1) + Cables::share(Lane::bulk, 1), kCableWindowBytes);
  EXPECT_EQ(Cables::share(Lane::bulk, 4), Cables::share(Lane::bulk, 1) / 4);
  EXPECT_EQ(Cables::first_grant(Lane::control), 8192u);
  EXPECT_EQ(Cables::first_grant(Lane::bulk), 57344u);
  EXPECT_EQ(kMaxCables / 2 * (Cables::first_grant(Lane::control) + Cables::first_grant(Lane::bulk)),
            kCableWindowBytes);
}

// ---- the frame

TEST(CableFrames, HaveTheseBytes) {
  CableSeal seal = CableSeal::make(kKey).value();
  Cable cable(kConnection, CableEnd::asker, std::move(seal), 0x0102);
  const Storage frame = cable.word().value();
  EXPECT_EQ(to_hex(frame.bytes()),
            "07000000000000000000000000000000"  // connection
            "0000000000000000"                  // sequence
            "0201000000000000"                  // limit
            "0200000000000000"                  // kind, reserved
            "bd168604501f2af83cdfcf9e1c4452ce");
}

TEST(CableFrames, AreRefusedWhenTheyAreNone) {
  Cable cable = make(CableEnd::asker);
  const std::string word = text_of(cable.word().value().bytes());
  const auto refuses = [](std::string bytes) {
    const auto read = read_cable_frame(bytes_of(bytes));
    return !read && read.error().code == ErrorCode::protocol_violation;
  };
  EXPECT_TRUE(refuses(""));
  EXPECT_TRUE(refuses(word.substr(1)));
  EXPECT_TRUE(refuses(word + 'x')) << "a word with a payload";
  for (const char kind : {0, 1, 5}) {
    std::string other = word;
    other[32] = kind;
    EXPECT_TRUE(refuses(other)) << int{kind};
  }
  std::string reserved = word;
  reserved[39] = 1;
  EXPECT_TRUE(refuses(reserved));
  std::string most(kMaxCableFrameBytes, '\0');
  most[32] = 1;
  EXPECT_FALSE(refuses(most));
  EXPECT_TRUE(refuses(most + '\0'));
}

}  // namespace
}  // namespace tendon::test
