// SPDX-License-Identifier: Apache-2.0
// Where the keys of a link's records are stored, how long, and in which process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <utility>

#include "records.hpp"
#include "secure/expand_label.hpp"
#include "secure/record_layer.hpp"
#include "support/child.hpp"
#include "support/sanitizer.hpp"
#include "support/secure/process_memory.hpp"

namespace tendon::test {
namespace {

using namespace tendon::detail::secure;
using ::testing::IsEmpty;

constexpr unsigned kSeedThere = 1;
constexpr unsigned kSeedBack = 2;

// Constructed in place, so no copy of it is left.
TrafficSecret traffic_secret(unsigned seed) {
  TrafficSecret secret;
  std::minstd_rand random(seed);
  for (std::byte& byte : secret.bytes()) byte = static_cast<std::byte>(random() >> 8);
  return secret;
}

// That secret and the key of its records. The IV is no secret, because nonces are made of it.
SoughtBytes sought_of(unsigned seed) {
  const TrafficSecret secret = traffic_secret(seed);
  AeadKey key;
  EXPECT_TRUE(succeeds(expand_label("SHA2-384", secret.bytes(), "key", key.bytes())));
  SoughtBytes sought;
  sought.add(secret.bytes());
  sought.add(key.bytes());
  return sought;
}

class RecordKeys : public EachSealer {
 protected:
  static RecordLayer end_with(unsigned sends, unsigned receives) {
    return RecordLayer::make(
               {.sending = traffic_secret(sends), .receiving = traffic_secret(receives)},
               GetParam())
        .value();
  }
};
TENDON_FOR_EACH_SEALER(RecordKeys);

TEST(Secrets, AMoveLeavesNoCopyAndTheEndWipes) {
  Secret<4> first;
  const std::byte* const place = first.bytes().data();
  first.bytes()[2] = std::byte{7};
  {
    const Secret<4> second(std::move(first));
    EXPECT_EQ(second.bytes().data(), place);
    EXPECT_EQ(second.bytes()[2], std::byte{7});
  }
  EXPECT_EQ(place[2], std::byte{0});
}

TEST_P(RecordKeys, AreWipedWithTheirDirection) {
  if (TENDON_SANITIZED) GTEST_SKIP() << "a sanitizer maps more memory than can be searched";
  const bool is_ours = GetParam() == SealerKind::ipsec_mb;
  const SoughtBytes there = sought_of(kSeedThere);
  const SoughtBytes back = sought_of(kSeedBack);
  ASSERT_EQ(there.count_inside() + back.count_inside(), 0U);
  auto sender = std::optional(end_with(kSeedThere, kSeedBack));
  auto receiver = std::optional(end_with(kSeedBack, kSeedThere));
  // An end has six times eight bytes of the secret, and four times of the key, which OpenSSL keeps
  // in its own memory.
  const std::size_t of_end = is_ours ? 10 : 6;
  EXPECT_EQ(there.count_inside(), 2 * of_end);
  EXPECT_EQ(back.count_inside(), 2 * of_end);

  Buffer record = sealed(*sender, random_bytes(100, 1));
  if (is_ours) {
    EXPECT_THAT(there.places_outside(), IsEmpty());
    EXPECT_THAT(back.places_outside(), IsEmpty());
  }
  record.back() ^= std::byte{1};
  EXPECT_FALSE(opened(*receiver, record));
  EXPECT_EQ(there.count_inside(), of_end) << "an error wipes what opens";
  EXPECT_EQ(back.count_inside(), 2 * of_end);
  (void)sealed_end(*receiver);
  EXPECT_EQ(back.count_inside(), of_end) << "the alert was the last that it seals";
  sender.reset();
  EXPECT_EQ(there.count_inside() + back.count_inside(), 0U);
  EXPECT_THAT(there.places_outside(), IsEmpty());
  EXPECT_THAT(back.places_outside(), IsEmpty());
}

TEST_P(RecordKeys, AreWipedWhenTheNextOneIsDerived) {
  const SoughtBytes first = sought_of(kSeedThere);
  auto protection = RecordProtection::make(traffic_secret(kSeedThere), GetParam()).value();
  EXPECT_NE(first.count_inside(), 0U);
  ASSERT_TRUE(succeeds(protection.advance()));
  EXPECT_EQ(first.count_inside(), 0U);
}

// A child shares the sequence and the socket with its parent, so nothing may be sealed there.
TEST_P(RecordKeys, AreOfOneProcess) {
  auto sender = end_with(kSeedThere, kSeedBack);
  auto receiver = end_with(kSeedBack, kSeedThere);
  const Buffer content = random_bytes(100, 1);
  const Buffer record = sealed(sender, content);
  const int status = run_in_child([&] {
    Buffer room(1000);
    const Bytes piece(content);
    if (!fails_with(sender.seal(std::span(&piece, 1), room, kNow), ErrorCode::forked)) return 1;
    if (!fails_with(opened(receiver, record), ErrorCode::forked)) return 2;
    if (receiver.seal_end(room)) return 3;
    return room == Buffer(1000) ? 0 : 4;
  });
  EXPECT_TRUE(exited_with(status, 0)) << status;
  EXPECT_TRUE(succeeds(opened(receiver, record))) << "the parent goes on";
}

TEST_P(RecordKeys, AChildDerivesNoNextOne) {
  auto protection = RecordProtection::make(traffic_secret(kSeedThere), GetParam()).value();
  const int status =
      run_in_child([&] { return fails_with(protection.advance(), ErrorCode::forked) ? 0 : 1; });
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

}  // namespace
}  // namespace tendon::test
