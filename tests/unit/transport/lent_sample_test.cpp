// SPDX-License-Identifier: Apache-2.0
#include "transport/lent_sample.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "support/expect.hpp"

namespace tendon::v0::detail {
namespace {

constexpr std::uint64_t kSlot = 16 * 1024;
constexpr std::uint64_t kCap = 8 * kSlot;

class LentSampleTest : public testing::Test {
 protected:
  using Keeps = LentSample::Keeps;
  void SetUp() override {
    slot_ = filled();
    op_.descriptor.payload_bytes = kSlot - 40;
    op_.descriptor.header_bytes = 40;
  }
  [[nodiscard]] std::shared_ptr<const PublishedSlot> filled() {
    auto slot = pool_->acquire(kSlot).value();
    std::memset(slot->memory().data(), 7, kSlot);
    return slot;
  }
  [[nodiscard]] Bytes body() const { return slot_->memory().first(kSlot); }
  [[nodiscard]] std::unique_ptr<LentSample> lend(Keeps keeps) {
    return std::make_unique<LentSample>(
        LentSample::Reader{.pool = pool_, .number = reader_, .copied = copied_}, slot_, body(),
        keeps);
  }
  [[nodiscard]] std::uint64_t used() const { return pool_->stats().slots.loaned_count; }
  /// The readers in shared memory hold as much as they may.
  void let_others_hold_all() {
    for (int n = 0; n < 6; ++n) {
      const auto slot = pool_->acquire(kSlot).value();
      ASSERT_EQ(pool_->give(pool_->add_link("keeper", 1), *slot), PublishPool::Window::open);
    }
  }

  const std::shared_ptr<PublishPool> pool_ = std::make_shared<PublishPool>(kCap);
  const std::shared_ptr<std::atomic<std::uint64_t>> copied_ =
      std::make_shared<std::atomic<std::uint64_t>>(0);
  const PublishPool::LinkNumber reader_ =
      pool_->add_link("reader", 1, PublishPool::Reads::over_socket);
  std::shared_ptr<const PublishedSlot> slot_;
  SendOp op_;
};

TEST_F(LentSampleTest, KeepsNothingBeforeItsFirstByteGoes) {
  const auto lent = lend(Keeps::once_begun);
  EXPECT_EQ(pool_->sending_bytes(), 0u);
  slot_ = nullptr;
  EXPECT_EQ(used(), 0u);
  EXPECT_FALSE(lent->begin(op_)) << "nobody has it any more";
  slot_ = filled();
  EXPECT_FALSE(lent->begin(op_)) << "it is over";
}

TEST_F(LentSampleTest, KeepsItsSlotFromItsFirstByteToItsLast) {
  const auto lent = lend(Keeps::once_begun);
  ASSERT_TRUE(lent->begin(op_));
  slot_ = nullptr;
  EXPECT_EQ(used(), 1u);
  EXPECT_EQ(pool_->sending_bytes(), kSlot);
  ASSERT_EQ(op_.parts.size(), 1u);
  EXPECT_EQ(op_.parts[0].bytes.size(), kSlot - 40);
  EXPECT_EQ(op_.parts[0].bytes.back(), std::byte{7});
  EXPECT_EQ(op_.header.size(), 40u);
  lent->end();
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(pool_->sending_bytes(), 0u);
}

TEST_F(LentSampleTest, OneThatIsWaitedForKeepsItsSlotUntilTheWaitIsOver) {
  const auto lent = lend(Keeps::until_sent);
  slot_ = nullptr;
  EXPECT_EQ(used(), 1u);
  EXPECT_EQ(pool_->sending_bytes(), kSlot);
  lent->wait_no_more();
  EXPECT_EQ(used(), 0u);
  EXPECT_EQ(pool_->sending_bytes(), 0u);
  EXPECT_FALSE(lent->begin(op_));
}

TEST_F(LentSampleTest, WhatHasBegunStaysWhenTheWaitIsOver) {
  const auto lent = lend(Keeps::until_sent);
  ASSERT_TRUE(lent->begin(op_));
  EXPECT_FALSE(lent->still_since()) << "somebody waits for it";
  slot_ = nullptr;
  lent->wait_no_more();
  EXPECT_EQ(used(), 1u);
  EXPECT_TRUE(lent->still_since());
}

TEST_F(LentSampleTest, SaysSinceWhenItStandsStill) {
  const auto lent = lend(Keeps::once_begun);
  EXPECT_FALSE(lent->still_since()) << "it has not begun";
  ASSERT_TRUE(lent->begin(op_));
  const auto begun = lent->still_since();
  ASSERT_TRUE(begun);
  EXPECT_TRUE(test::eventually([&] { return LentSample::Clock::now() > *begun; }));
  lent->note_moved();
  EXPECT_GT(*lent->still_since(), *begun);
  lent->end();
  EXPECT_FALSE(lent->still_since());
}

TEST_F(LentSampleTest, IsACopyWhereTheReadersHaveAllThatTheyMayHave) {
  ASSERT_NO_FATAL_FAILURE(let_others_hold_all());
  for (const Keeps keeps : {Keeps::until_sent, Keeps::once_begun}) {
    slot_ = filled();
    const auto lent = lend(keeps);
    ASSERT_TRUE(lent->begin(op_));
    slot_ = nullptr;
    EXPECT_EQ(used(), 6u) << "none is kept for it";
    EXPECT_EQ(pool_->sending_bytes(), kSlot) << "it takes memory all the same";
    EXPECT_EQ(op_.parts[0].bytes.back(), std::byte{7});
    lent->end();
    EXPECT_EQ(pool_->sending_bytes(), 0u);
  }
  EXPECT_EQ(*copied_, 2u);
}

// The copy ended with the wait; its slot still exists.
TEST_F(LentSampleTest, ACopyThatWasLetGoIsMadeAgain) {
  ASSERT_NO_FATAL_FAILURE(let_others_hold_all());
  const auto lent = lend(Keeps::until_sent);
  lent->wait_no_more();
  EXPECT_EQ(pool_->sending_bytes(), 0u);
  ASSERT_TRUE(lent->begin(op_));
  EXPECT_EQ(op_.parts[0].bytes.back(), std::byte{7});
}

TEST_F(LentSampleTest, WithoutASlotIsACopyFromTheBeginning) {
  std::vector<std::byte> memory(100, std::byte{9});
  LentSample lent({.pool = pool_, .number = reader_, .copied = copied_}, nullptr, memory,
                  Keeps::until_sent);
  memory.assign(100, std::byte{0});
  op_.descriptor.payload_bytes = 60;
  op_.descriptor.values_bytes = 30;
  op_.descriptor.header_bytes = 10;
  lent.describe(op_);
  EXPECT_EQ(op_.parts[0].bytes.back(), std::byte{9});
  EXPECT_EQ(op_.values.size(), 30u);
  EXPECT_EQ(op_.header.back(), std::byte{9});
  EXPECT_EQ(*copied_, 0u) << "it had no slot";
  EXPECT_EQ(lent.slot(), nullptr);
}

}  // namespace
}  // namespace tendon::v0::detail
