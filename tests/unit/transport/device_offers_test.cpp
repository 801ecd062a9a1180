// SPDX-License-Identifier: Apache-2.0
#include "transport/device_offers.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <tendon/session/limits.hpp>
#include <thread>
#include <vector>

namespace tendon::test {
namespace {

using detail::Descriptor;
using detail::DeviceOffers;
using detail::Feature;
using detail::Features;
using detail::MessageKind;
using detail::cuda::Uuid;

constexpr Features kDevices(static_cast<std::uint64_t>(Feature::devices));

/// A UUID whose bytes all differ.
Uuid gpu(std::size_t number) {
  Uuid uuid{};
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i)
    uuid.bytes[i] = static_cast<unsigned char>(16 * number + i + 1);
  uuid.bytes[15] = static_cast<unsigned char>(number);
  return uuid;
}

/// Offers that record their messages.
class Side {
 public:
  std::optional<std::uint32_t> number_of(std::size_t number) {
    return offers.number_of(gpu(number), [this](const Descriptor& word) { said.push_back(word); });
  }
  DeviceOffers offers;
  std::vector<Descriptor> said;
};

/// The messages for `count` GPUs.
std::vector<Descriptor> words_of(std::size_t count) {
  Side side;
  for (std::size_t n = 0; n < count; ++n) (void)side.number_of(n);
  return side.said;
}

TEST(DeviceOffers, NumbersRiseFromZeroAndEachGpuIsOfferedOnce) {
  Side side;
  for (int round = 0; round < 3; ++round)
    for (std::uint32_t n = 0; n < 5; ++n) EXPECT_EQ(side.number_of(n), n) << round;
  ASSERT_EQ(side.said.size(), 5u);
  for (std::uint32_t n = 0; n < 5; ++n) {
    const Descriptor& word = side.said[n];
    EXPECT_EQ(word.kind, MessageKind::device);
    EXPECT_EQ(word.pipe, 0u);
    EXPECT_EQ(word.tag, 1u);
    EXPECT_EQ(word.schema, n);
    EXPECT_EQ(check_descriptor(word, 1 << 20), "");
  }
}

TEST(DeviceOffers, TheBytesOfAUuidArriveInTheirOrder) {
  Side side;
  DeviceOffers peer;
  for (std::size_t n = 0; n < 3; ++n) (void)side.number_of(n);
  EXPECT_EQ(peer.of_peer(0), nullptr);
  for (const Descriptor& word : side.said) EXPECT_EQ(peer.take_in(word, kDevices), "");
  for (std::uint32_t n = 0; n < 3; ++n) {
    ASSERT_NE(peer.of_peer(n), nullptr) << n;
    EXPECT_EQ(*peer.of_peer(n), gpu(n)) << n;
  }
  EXPECT_EQ(peer.of_peer(3), nullptr);
  EXPECT_EQ(peer.of_peer(~0u), nullptr);
  // On the wire, the first half is the generation, and the second half the offset.
  EXPECT_EQ(side.said[0].generation, 0x0807060504030201u);
  EXPECT_EQ(side.said[0].offset, 0x000f0e0d0c0b0a09u);
}

TEST(DeviceOffers, EachSideCountsItsOwn) {
  Side side;
  EXPECT_EQ(side.number_of(7), 0u);
  for (const Descriptor& word : words_of(3)) EXPECT_EQ(side.offers.take_in(word, kDevices), "");
  EXPECT_EQ(side.number_of(8), 1u);
  EXPECT_EQ(side.number_of(0), 2u) << "a GPU that the peer has offered is still ours to offer";
  EXPECT_EQ(*side.offers.of_peer(0), gpu(0));
}

TEST(DeviceOffers, AtTheLimitKnownGpusStayKnownAndNoOtherIsOffered) {
  Side side;
  for (std::uint32_t n = 0; n < kMaxDevicesPerLink; ++n) ASSERT_EQ(side.number_of(n), n);
  EXPECT_EQ(side.number_of(kMaxDevicesPerLink), std::nullopt);
  EXPECT_EQ(side.number_of(kMaxDevicesPerLink - 1), kMaxDevicesPerLink - 1);
  EXPECT_EQ(side.number_of(kMaxDevicesPerLink + 1), std::nullopt);
  EXPECT_EQ(side.said.size(), kMaxDevicesPerLink);
}

TEST(DeviceOffers, ThePeerIsHeldToTheSameLimit) {
  DeviceOffers offers;
  for (const Descriptor& word : words_of(kMaxDevicesPerLink))
    ASSERT_EQ(offers.take_in(word, kDevices), "");
  Descriptor beyond = words_of(1).front();
  beyond.schema = kMaxDevicesPerLink;
  beyond.offset = ~std::uint64_t{0};
  EXPECT_NE(offers.take_in(beyond, kDevices).find("kMaxDevicesPerLink"), std::string_view::npos);
  EXPECT_EQ(offers.of_peer(kMaxDevicesPerLink), nullptr);
}

TEST(DeviceOffers, AWordThatBreaksARuleIsNamedAndChangesNothing) {
  const std::vector<Descriptor> words = words_of(3);
  DeviceOffers offers;
  ASSERT_EQ(offers.take_in(words[0], kDevices), "");
  const auto is_refused = [&](Descriptor word, std::string_view why) {
    EXPECT_NE(offers.take_in(word, kDevices).find(why), std::string_view::npos)
        << why << ": " << offers.take_in(word, kDevices);
    EXPECT_EQ(offers.of_peer(1), nullptr) << why;
    EXPECT_EQ(*offers.of_peer(0), gpu(0)) << why;
  };
  Descriptor word = words[1];
  for (const std::uint32_t tag : {0u, 2u, ~0u}) {
    word.tag = tag;
    is_refused(word, "unknown word");
  }
  is_refused(words[2], "out of order");
  is_refused(words[0], "out of order");
  word = words[1];
  word.schema = ~0u;
  is_refused(word, "out of order");
  word = words[0];
  word.schema = 1;
  is_refused(word, "twice");
  EXPECT_EQ(offers.take_in(words[1], kDevices), "");
}

TEST(DeviceOffers, WithoutTheFeatureNoneIsTakenIn) {
  DeviceOffers offers;
  EXPECT_NE(offers.take_in(words_of(1).front(), Features::of_minor(1)).find("`devices`"),
            std::string_view::npos);
  EXPECT_EQ(offers.of_peer(0), nullptr);
}

// A thread that receives a number may use it at once.
TEST(DeviceOffers, AnOfferIsPostedBeforeASecondThreadGetsItsNumber) {
  DeviceOffers offers;
  std::atomic<bool> asks{false};
  std::atomic<bool> is_posted{false};
  std::thread second;
  const auto first = offers.number_of(gpu(1), [&](const Descriptor&) {
    second = std::thread([&] {
      asks.store(true);
      EXPECT_EQ(offers.number_of(gpu(1), [](const Descriptor&) { ADD_FAILURE() << "twice"; }), 0u);
      EXPECT_TRUE(is_posted.load());
    });
    while (!asks.load()) std::this_thread::yield();
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // a chance to be too early
    is_posted.store(true);
  });
  second.join();
  EXPECT_EQ(first, 0u);
}

TEST(DeviceOffers, ThreadsThatOfferTheSameGpusAgreeAboutTheirNumbers) {
  constexpr std::size_t kThreads = 4;
  DeviceOffers offers;
  std::mutex mutex;
  std::vector<Descriptor> said;
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::size_t i = 0; i < kMaxDevicesPerLink; ++i) {
        const Uuid mine = gpu((i * (2 * thread + 1)) % kMaxDevicesPerLink);
        const auto number = offers.number_of(mine, [&](const Descriptor& word) {
          const std::lock_guard lock(mutex);
          said.push_back(word);
        });
        ASSERT_TRUE(number.has_value());
        const std::lock_guard lock(mutex);
        ASSERT_LT(*number, said.size()) << "not offered yet";
        EXPECT_EQ(said[*number].schema, *number);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(said.size(), kMaxDevicesPerLink);
  DeviceOffers peer;
  for (const Descriptor& word : said) ASSERT_EQ(peer.take_in(word, kDevices), "");
  for (std::size_t n = 0; n < kMaxDevicesPerLink; ++n) {
    const auto number = offers.number_of(gpu(n), [](const Descriptor&) { ADD_FAILURE(); });
    ASSERT_TRUE(number.has_value());
    EXPECT_EQ(*peer.of_peer(*number), gpu(n));
  }
}

}  // namespace
}  // namespace tendon::test
