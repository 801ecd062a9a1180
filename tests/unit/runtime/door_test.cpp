// SPDX-License-Identifier: Apache-2.0
#include "runtime/door.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <random>
#include <tendon/session/limits.hpp>

namespace tendon::test {
namespace {

using detail::Door;
using detail::Source;
using std::chrono::milliseconds;

Source host(unsigned number) {
  Source source{};
  source[14] = static_cast<std::byte>(number >> 8);
  source[15] = static_cast<std::byte>(number);
  return source;
}
constexpr std::optional<Source> kExempt;

class DoorTest : public testing::Test {
 protected:
  /// Enters a further connection; returns its number, or nothing when it has no place.
  std::optional<Door::Number> enter(const std::optional<Source>& source = kExempt) {
    const Door::Number number = next_++;
    last_ = door_.enter(number, source, now_);
    if (!last_.stays) return std::nullopt;
    return number;
  }
  bool hear(Door::Number number) {
    last_ = door_.hear(number, now_);
    return last_.stays;
  }
  bool answer(Door::Number number) {
    last_ = door_.answer(number, now_);
    return last_.stays;
  }
  /// Fills the places of the handshake; returns the first number.
  Door::Number fill_handshakes() {
    const Door::Number first = next_;
    for (std::size_t i = 0; i < kHandshakesPerListener; ++i) EXPECT_TRUE(hear(enter().value()));
    return first;
  }
  [[nodiscard]] bool is_gone(Door::Number number) const {
    return door_.due(number) == Door::Time::min();
  }
  Door door_;
  Door::Time now_{std::chrono::hours(1)};
  Door::Number next_ = 1;
  Door::Verdict last_;
};

TEST_F(DoorTest, SaysWhenAConnectionMustBeFurther) {
  const Door::Time came = now_;
  const Door::Number number = enter().value();
  EXPECT_EQ(door_.due(number), came + kFirstFrameTimeout);
  now_ += milliseconds(900);
  ASSERT_TRUE(hear(number));
  EXPECT_EQ(door_.due(number), came + kHandshakeTimeout) << "of the whole, from the beginning";
  now_ += milliseconds(900);
  ASSERT_TRUE(hear(number));
  EXPECT_EQ(door_.due(number), came + kHandshakeTimeout) << "further frames buy no time";
  door_.leave(number);
  EXPECT_TRUE(is_gone(number));
  EXPECT_FALSE(hear(number));
}

TEST_F(DoorTest, TheOldestSilentOneGoesForANewcomer) {
  const Door::Number talks = enter().value();
  ASSERT_TRUE(hear(talks));
  const Door::Number oldest = enter().value();
  const Door::Number second = enter().value();
  for (std::size_t i = 2; i < kSilentPerListener; ++i) {
    ASSERT_TRUE(enter());
    EXPECT_FALSE(last_.displaced);
  }
  ASSERT_TRUE(enter());
  EXPECT_EQ(last_.displaced, oldest);
  EXPECT_TRUE(is_gone(oldest));
  EXPECT_FALSE(hear(oldest)) << "too late";
  ASSERT_TRUE(hear(second));
  ASSERT_TRUE(enter());
  EXPECT_FALSE(last_.displaced) << "the second one has left its place among the silent";
  EXPECT_FALSE(is_gone(talks));
}

TEST_F(DoorTest, AFullHandshakeTurnsNewcomersAwayWhileItsPeersGoOn) {
  const Door::Number first = fill_handshakes();
  const Door::Number newcomer = enter().value();
  now_ += kFirstFrameTimeout - milliseconds(1);
  EXPECT_FALSE(hear(newcomer));
  EXPECT_FALSE(last_.displaced);
  EXPECT_TRUE(is_gone(newcomer));
  door_.leave(first);
  EXPECT_TRUE(hear(enter().value()));
}

TEST_F(DoorTest, TheOneThatHasStalledForLongestGoesFirst) {
  const Door::Number first = fill_handshakes();
  now_ += milliseconds(1);
  ASSERT_TRUE(hear(first)) << "it goes on, so it is no longer the one";
  now_ += kFirstFrameTimeout - milliseconds(1);
  ASSERT_TRUE(hear(enter().value()));
  EXPECT_EQ(last_.displaced, first + 1);
  EXPECT_TRUE(is_gone(first + 1));
  EXPECT_FALSE(is_gone(first));
}

// Anybody can send a ClientHello, and with certificates anybody receives an answer.
TEST_F(DoorTest, TheFirstThatWasAnsweredGoesForAFurtherOne) {
  const Door::Number first = next_;
  for (std::size_t i = 0; i < kHandshakesPerListener; ++i) ASSERT_TRUE(answer(enter().value()));
  ASSERT_TRUE(answer(enter().value()));
  EXPECT_EQ(last_.displaced, first);
  ASSERT_TRUE(hear(enter().value()));
  EXPECT_EQ(last_.displaced, first + 1);
  EXPECT_TRUE(is_gone(first + 1));
}

TEST_F(DoorTest, OneThatIsKnownGoesForNoneThatWasAnswered) {
  const Door::Number known = enter().value();
  ASSERT_TRUE(answer(known));
  ASSERT_TRUE(hear(known));
  EXPECT_FALSE(last_.displaced) << "it had a place";
  for (std::size_t i = 0; i < 3 * kHandshakesPerListener; ++i) {
    now_ += milliseconds(1);
    ASSERT_TRUE(answer(enter().value()));
    ASSERT_FALSE(is_gone(known));
  }
  EXPECT_EQ(door_.due(known), Door::Time(std::chrono::hours(1)) + kHandshakeTimeout);
}

TEST_F(DoorTest, AFullHandshakeAnswersNobody) {
  (void)fill_handshakes();
  const Door::Number newcomer = enter().value();
  EXPECT_FALSE(answer(newcomer));
  EXPECT_FALSE(last_.displaced);
  EXPECT_TRUE(is_gone(newcomer));
}

TEST_F(DoorTest, OneAddressHasSixteenPlacesAndItsOwnOldestGoesForItsNewcomers) {
  const Door::Number of_other = enter(host(2)).value();
  const Door::Number oldest = enter(host(1)).value();
  for (std::size_t i = 1; i < kConnectionsPerSource; ++i) {
    ASSERT_TRUE(enter(host(1)));
    EXPECT_FALSE(last_.displaced);
  }
  ASSERT_TRUE(enter(host(1)));
  EXPECT_EQ(last_.displaced, oldest);
  EXPECT_FALSE(is_gone(of_other));
  ASSERT_TRUE(enter(host(2)));
  EXPECT_FALSE(last_.displaced);
}

TEST_F(DoorTest, OneAddressThatStallsInTheHandshakeShutsItselfOutAndNobodyElse) {
  for (std::size_t i = 0; i < kConnectionsPerSource; ++i) ASSERT_TRUE(hear(enter(host(1)).value()));
  EXPECT_FALSE(enter(host(1)));
  EXPECT_FALSE(last_.displaced);
  EXPECT_TRUE(enter(host(2)));
  EXPECT_TRUE(enter(kExempt));
}

TEST_F(DoorTest, TheExemptShareNoAddress) {
  for (std::size_t i = 0; i < 2 * kConnectionsPerSource; ++i) {
    ASSERT_TRUE(enter(kExempt));
    EXPECT_FALSE(last_.displaced);
  }
}

TEST_F(DoorTest, RandomCrowdsAgreeWithTheRules) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  struct Known {
    std::optional<Source> source;
    bool is_silent;
    bool is_known = false;
  };
  std::map<Door::Number, Known> inside;
  const auto check = [&] {
    std::size_t silent = 0;
    std::map<Source, std::size_t> of_source;
    for (const auto& [number, known] : inside) {
      ASSERT_FALSE(is_gone(number)) << number;
      silent += known.is_silent ? 1 : 0;
      if (known.source) ++of_source[*known.source];
    }
    for (const auto& [source, count] : of_source) ASSERT_LE(count, kConnectionsPerSource);
    ASSERT_LE(silent, kSilentPerListener);
    ASSERT_LE(inside.size() - silent, kHandshakesPerListener);
  };
  for (int step = 0; step < 5'000 && !HasFatalFailure(); ++step) {
    now_ += milliseconds(random() % 20);
    const auto choice = random() % 9;
    Door::Number newest = 0;  // the one that has advanced
    if (choice < 5 || inside.empty()) {
      const auto source = random() % 2 == 0 ? kExempt : std::optional(host(random() % 30));
      const auto number = enter(source);
      if (number) inside[*number] = {source, true};
    } else {
      auto one = std::next(inside.begin(), static_cast<std::ptrdiff_t>(random() % inside.size()));
      const Door::Number number = one->first;
      newest = number;
      if (choice == 5) {
        door_.leave(number);
        inside.erase(one);
      } else if (choice == 8 ? answer(number) : hear(number)) {
        one->second.is_silent = false;
        one->second.is_known |= choice != 8;
      } else {
        ASSERT_TRUE(one->second.is_silent) << "what is in the handshake stays when it goes on";
        inside.erase(one);
      }
    }
    if (last_.displaced) {
      ASSERT_TRUE(is_gone(*last_.displaced));
      const auto goes = inside.find(*last_.displaced);
      ASSERT_NE(goes, inside.end());
      ASSERT_TRUE(!goes->second.is_known || std::ranges::none_of(inside, [&](const auto& other) {
        return other.first != newest && !other.second.is_silent && !other.second.is_known;
      }));
      inside.erase(*std::exchange(last_.displaced, std::nullopt));
    }
    check();
  }
}

}  // namespace
}  // namespace tendon::test
