// SPDX-License-Identifier: Apache-2.0
#include "channel/window.hpp"

#include <gtest/gtest.h>

#include "channel/receive_window.hpp"
#include "channel/send_window.hpp"

namespace tendon::test {
namespace {

using detail::Descriptor;
using detail::ReceiveWindow;
using detail::SendWindow;

constexpr std::uint64_t kMiB = 1 << 20;
constexpr std::uint64_t kCap = 512 * kMiB;

Descriptor credit(std::uint64_t messages, std::uint64_t bytes) {
  return {.kind = detail::MessageKind::credit, .sequence = messages, .payload_bytes = bytes};
}

TEST(ChannelWindow, IsThatOfTheProtocolUnlessAnOpenSaysAnother) {
  constexpr detail::Window kConstant;
  EXPECT_EQ(kConstant.messages, 256u);
  EXPECT_EQ(kConstant.bytes, 64 * kMiB);
  EXPECT_EQ(kConstant.step_messages, 64u);
  EXPECT_EQ(kConstant.step_bytes, 8 * kMiB);
  constexpr detail::Window kSaid = detail::Window::said(16, 3 * kMiB + 1);
  EXPECT_EQ(kSaid.step_messages, 8u);
  EXPECT_EQ(kSaid.step_bytes, (3 * kMiB + 1) / 2 + 1);
  EXPECT_EQ(detail::Window::said(1, 1).step_messages, 1u) << "or no credit is ever due";
  EXPECT_EQ(detail::Window::said(1, 1).step_bytes, 1u);
}

TEST(ChannelWindow, LetsInWhatFitsAndAnythingWhileLessThanAStepIsOpen) {
  constexpr detail::Window kWindow = detail::Window::said(16, 10 * kMiB);
  EXPECT_TRUE(kWindow.fits(0, 400 * kMiB, kCap));
  EXPECT_TRUE(kWindow.fits(5 * kMiB - 1, 400 * kMiB, kCap));
  EXPECT_TRUE(kWindow.fits(5 * kMiB, 5 * kMiB, kCap));
  EXPECT_TRUE(kWindow.fits(6 * kMiB, 4 * kMiB, kCap));
  EXPECT_FALSE(kWindow.fits(6 * kMiB, 4 * kMiB + 1, kCap));
  EXPECT_FALSE(kWindow.fits(10 * kMiB, 1, kCap));
  // Two of those are larger than the window, but within the cap.
  EXPECT_TRUE(kWindow.fits(20 * kMiB, 20 * kMiB, kCap));
  EXPECT_FALSE(kWindow.fits(40 * kMiB, 20 * kMiB, kCap));
  EXPECT_FALSE(kWindow.fits(20 * kMiB, 20 * kMiB, 39 * kMiB));
}

TEST(SendWindow, ClosesByMessagesAndByBytesAndOpensByCredit) {
  SendWindow window(detail::Window::said(4, 1000), kCap);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(window.open_for(1)) << i;
    window.count(1);
  }
  EXPECT_FALSE(window.open_for(1));
  EXPECT_EQ(window.untaken_messages(), 4u);
  EXPECT_TRUE(window.on_credit(credit(2, 2)));
  EXPECT_EQ(window.untaken_messages(), 2u);
  EXPECT_TRUE(window.open_for(998));
  window.count(998);
  EXPECT_EQ(window.untaken_bytes(), 1000u);
  EXPECT_FALSE(window.open_for(1));
  window.uncount(998);
  EXPECT_TRUE(window.open_for(1));
}

TEST(SendWindow, TotalsThatFallOrLieOpenNothingMore) {
  SendWindow window(detail::Window::said(4, 1000), kCap);
  for (int i = 0; i < 4; ++i) window.count(100);
  EXPECT_TRUE(window.on_credit(credit(3, 300)));
  EXPECT_TRUE(window.on_credit(credit(1, 100)));
  EXPECT_EQ(window.untaken_messages(), 1u);
  EXPECT_EQ(window.untaken_bytes(), 100u);
  EXPECT_FALSE(window.on_credit(credit(9, 401))) << "more than was counted";
  EXPECT_EQ(window.untaken_bytes(), 0u) << "never less than nothing";
}

TEST(SendWindow, WithoutBytesCountsMessagesAlone) {
  SendWindow window(detail::Window::said(2, 10).without_bytes(), kCap);
  window.count(kCap);
  EXPECT_TRUE(window.open_for(kCap));
  window.count(kCap);
  EXPECT_FALSE(window.open_for(0));
}

TEST(SendWindow, AcksOnlyRise) {
  SendWindow window({}, kCap);
  window.on_ack({.kind = detail::MessageKind::ack, .sequence = 7});
  window.on_ack({.kind = detail::MessageKind::ack, .sequence = 5});
  EXPECT_EQ(window.acked_sequence(), 7u);
}

TEST(ReceiveWindow, CreditIsDueAtHalfOfAWindowThatWasSaid) {
  ReceiveWindow window(detail::Window::said(16, kMiB), kCap);
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 8; ++i) window.come(10);
    for (int i = 0; i < 7; ++i) EXPECT_EQ(window.take(3, 10).pipe, 0u);
    const Descriptor due = window.take(3, 10);
    EXPECT_EQ(due.kind, detail::MessageKind::credit);
    EXPECT_EQ(due.pipe, 3u);
    EXPECT_EQ(due.sequence, 8u * round) << "a total";
    EXPECT_EQ(due.payload_bytes, 80u * round);
  }
}

TEST(ReceiveWindow, CreditIsDueByBytesAndAtOnceForALargeMessage) {
  ReceiveWindow window(detail::Window::said(1000, 800), kCap);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(window.take(1, 99).pipe, 0u);
  EXPECT_EQ(window.take(1, 4).payload_bytes, 400u);
  EXPECT_EQ(window.take(1, 100).payload_bytes, 500u) << "an eighth of the window";
  ReceiveWindow slots(detail::Window::said(1000, 800).without_bytes(), kCap);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(slots.take(1, kMiB).pipe, 0u);
}

TEST(ReceiveWindow, AdmitsByWhatWaits) {
  ReceiveWindow window(detail::Window::said(1000, 800), kCap);
  window.come(500);
  EXPECT_TRUE(window.admits(300));
  EXPECT_FALSE(window.admits(301));
  window.drop(101);
  EXPECT_TRUE(window.admits(kCap));
  window.come(700);
  EXPECT_FALSE(window.admits(1));
  (void)window.take(1, 700);
  EXPECT_EQ(window.waiting_bytes(), 399u);
  window.drop_all();
  EXPECT_EQ(window.waiting_bytes(), 0u);
}

// Messages that were taken but not acknowledged must not block the sender, or both sides wait for
// ever.
TEST(ReceiveWindow, ASenderThatWasToldNothingYetMaySendAnything) {
  for (const detail::Window said : {detail::Window{}, detail::Window::said(1, 1),
                                    detail::Window::said(3, 5), detail::Window::said(16, 1000)}) {
    SendWindow sender(said, kCap);
    ReceiveWindow receiver(said, kCap);
    for (int i = 0; i < 2000; ++i) {
      const std::uint64_t size = (i * 37) % 300;
      ASSERT_TRUE(sender.open_for(size)) << said.messages << ", " << i;
      ASSERT_TRUE(sender.open_for(kCap)) << "however large";
      sender.count(size);
      ASSERT_TRUE(receiver.admits(size));
      receiver.come(size);
      if (const Descriptor due = receiver.take(1, size); due.pipe != 0) (void)sender.on_credit(due);
    }
  }
}

}  // namespace
}  // namespace tendon::test
