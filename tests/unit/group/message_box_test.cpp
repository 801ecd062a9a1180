// SPDX-License-Identifier: Apache-2.0
// Which receive takes which message.
#include "group/epochs/message_box.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "support/expect.hpp"

namespace tendon::detail {
namespace {

using Receive = MessageBox::Receive;

constexpr std::uint32_t kNone = 0;  // no message has this tag here

InboundMessage message(std::uint32_t tag) {
  InboundMessage inbound;
  inbound.envelope = {.kind = EnvelopeKind::message, .tag = tag};
  return inbound;
}

std::uint32_t take(MessageBox& box, Receive& receive) {
  const auto taken = box.take(receive, [](const auto&) { return Result<void>(); });
  return taken.value() ? (*taken)->inbound.envelope.tag : kNone;
}

TEST(MessageBox, TheFirstReceiveHasTheFirstMessageWhicheverLooksFirst) {
  MessageBox box;
  Receive first;
  Receive second;
  box.post(first);
  box.post(second);
  box.put({0}, message(1));
  EXPECT_EQ(take(box, second), kNone);
  box.put({0}, message(2));
  EXPECT_EQ(take(box, second), 2u);
  EXPECT_EQ(take(box, first), 1u);
}

TEST(MessageBox, AReceiveWaitsForNoOneWhoWantsSomethingElse) {
  MessageBox box;
  Receive of_rank_1{.place = GroupPlace{1}, .tag = {}};
  Receive of_tag_7{.place = {}, .tag = 7};
  Receive any;
  box.post(of_rank_1);
  box.post(of_tag_7);
  box.post(any);
  box.put({0}, message(5));
  EXPECT_EQ(take(box, any), 5u);
  EXPECT_EQ(take(box, of_rank_1), kNone);
  EXPECT_EQ(take(box, of_tag_7), kNone);
}

TEST(MessageBox, WhatAWithdrawnReceiveHadTheNextOnesHaveInOrder) {
  MessageBox box;
  Receive first;
  Receive second;
  Receive third;
  for (Receive* each : {&first, &second, &third}) box.post(*each);
  box.put({0}, message(1));
  box.put({0}, message(2));
  EXPECT_TRUE(box.withdraw(first)) << "others are to look again";
  EXPECT_FALSE(box.withdraw(first));
  EXPECT_EQ(take(box, third), 2u);
  EXPECT_EQ(take(box, second), 1u);
  EXPECT_FALSE(box.withdraw(second)) << "it has had its turn";
}

TEST(MessageBox, WhatDoesNotFitStaysWithItsReceiveUntilThatIsWithdrawn) {
  MessageBox box;
  Receive choosy;
  Receive next;
  box.post(choosy);
  box.post(next);
  box.put({0}, message(1));
  const auto refused = box.take(choosy, [](const auto&) -> Result<void> {
    return Error{ErrorCode::mismatch, "test", "another shape"};
  });
  EXPECT_FALSE(refused);
  EXPECT_EQ(take(box, next), kNone);
  EXPECT_TRUE(box.withdraw(choosy));
  EXPECT_EQ(take(box, next), 1u);
}

TEST(MessageBox, WhatIsPutBackComesBeforeWhatCameLater) {
  MessageBox box;
  Receive first;
  box.post(first);
  box.put({0}, message(1));
  box.put({0}, message(2));
  auto taken = box.take(first, [](const auto&) { return Result<void>(); });
  Receive next;
  box.post(next);
  box.put_back(*std::move(taken.value()));
  EXPECT_EQ(take(box, next), 1u);
}

TEST(MessageBox, WhatIsDroppedIsNobodysMatch) {
  MessageBox box;
  Receive any;
  box.post(any);
  box.put({3}, message(1));
  box.put({4}, message(2));
  box.drop({3});
  EXPECT_EQ(take(box, any), 2u);
  box.post(any);
  box.put({3}, message(3));
  box.close();
  EXPECT_EQ(take(box, any), kNone);
}

/// The same in the simplest form: each look matches everything anew.
class Model {
 public:
  struct Message {
    GroupPlace place;
    std::uint32_t tag;
  };
  std::vector<Message> messages;
  std::vector<const Receive*> receives;

  std::uint32_t match_of(const Receive& wanted) const {
    std::vector<bool> used(messages.size());
    for (const Receive* receive : receives) {
      std::uint32_t found = kNone;
      for (std::size_t i = 0; i < messages.size() && found == kNone; ++i) {
        if (used[i] || (receive->place && *receive->place != messages[i].place)) continue;
        if (receive->tag && *receive->tag != messages[i].tag) continue;
        used[i] = true;
        found = messages[i].tag;
      }
      if (receive == &wanted) return found;
    }
    return kNone;
  }
};

// Tags are numbers of the messages, so that a receive with a tag wants one that may arrive.
TEST(MessageBox, DoesAsTheModelWhateverHappens) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    std::minstd_rand random(seed);
    const auto below = [&random](std::uint32_t limit) {
      return static_cast<std::uint32_t>(random() % limit);
    };
    MessageBox box;
    Model model;
    std::vector<std::unique_ptr<Receive>> receives;
    std::uint32_t sent = kNone;
    for (int step = 0; step < 120; ++step) {
      const std::uint32_t what = below(10);
      if (what < 4) {
        const GroupPlace place{below(3)};
        box.put(place, message(++sent));
        model.messages.push_back({place, sent});
      } else if (what < 7) {
        auto& receive = receives.emplace_back(std::make_unique<Receive>());
        if (below(2) == 0) receive->place = GroupPlace{below(3)};
        if (below(3) == 0) receive->tag = sent + 1 + below(3);
        box.post(*receive);
        model.receives.push_back(receive.get());
      } else if (!receives.empty()) {
        const std::size_t which = below(static_cast<std::uint32_t>(receives.size()));
        Receive& receive = *receives[which];
        const std::uint32_t expected = model.match_of(receive);
        const bool withdraws = what == 9;
        if (withdraws) {
          ASSERT_EQ(box.withdraw(receive), expected != kNone);
        } else {
          ASSERT_EQ(take(box, receive), expected) << "seed " << seed << ", step " << step;
          if (expected == kNone) continue;
          std::erase_if(model.messages, [&](const auto& each) { return each.tag == expected; });
        }
        std::erase(model.receives, &receive);
        receives.erase(receives.begin() + static_cast<std::ptrdiff_t>(which));
      }
    }
  }
}

}  // namespace
}  // namespace tendon::detail
