// SPDX-License-Identifier: Apache-2.0
// The table of pipe/destination.hpp, line by line.
#include "pipe/destination.hpp"

#include <gtest/gtest.h>

#include <map>

#include "support/batches.hpp"

namespace tendon::test {
namespace {

using detail::Destination;
using State = Destination::State;

constexpr std::uint64_t kSize = 100;

struct Claimed {
  Claimed() : receive(patterned(1, kSize)), other(patterned(2, kSize)) {}
  const PackedLayout& layout() const { return receive.schema()->layout(Layout::aligned); }
  bool claim() {
    pieces.clear();
    return destination.claim(receive, layout(), pieces);
  }
  /// Brings it from `none` to `state`.
  void bring_to(State state) {
    if (state == State::none) return;
    ASSERT_TRUE(claim());
    if (state == State::written || state == State::kept) destination.complete();
    if (state == State::kept_writing || state == State::kept) destination.keep();
    ASSERT_EQ(destination.state(), state);
  }
  TensorDict receive;
  TensorDict other;
  Destination destination;
  std::vector<MutableBytes> pieces;
};

constexpr State kStates[] = {State::none, State::writing, State::written, State::kept_writing,
                             State::kept};

template <class F>
void expect_steps(F step, std::map<State, State> table) {
  for (const State state : kStates) {
    Claimed c;
    c.bring_to(state);
    step(c);
    const auto next = table.find(state);
    EXPECT_EQ(c.destination.state(), next == table.end() ? state : next->second)
        << static_cast<int>(state);
  }
}

TEST(Destination, Claim) {
  expect_steps([](Claimed& c) { (void)c.claim(); }, {{State::none, State::writing}});
}

TEST(Destination, Complete) {
  expect_steps([](Claimed& c) { c.destination.complete(); },
               {{State::writing, State::written}, {State::kept_writing, State::kept}});
}

TEST(Destination, Abort) {
  expect_steps([](Claimed& c) { c.destination.abort(); },
               {{State::writing, State::none}, {State::kept_writing, State::none}});
}

TEST(Destination, Keep) {
  expect_steps([](Claimed& c) { c.destination.keep(); },
               {{State::writing, State::kept_writing}, {State::written, State::kept}});
}

TEST(Destination, Take) {
  expect_steps([](Claimed& c) { (void)c.destination.take(nullptr); },
               {{State::written, State::none}, {State::kept, State::none}});
}

TEST(Destination, Drop) {
  expect_steps([](Claimed& c) { (void)c.destination.drop(); }, {{State::writing, State::none},
                                                                {State::written, State::none},
                                                                {State::kept_writing, State::none},
                                                                {State::kept, State::none}});
  for (const State state : kStates) {
    Claimed c;
    c.bring_to(state);
    EXPECT_EQ(c.destination.drop(), state == State::writing || state == State::kept_writing)
        << "the transport must be told";
  }
}

TEST(Destination, MoveAway) {
  for (const State state : {State::written, State::kept}) {
    Claimed c;
    c.bring_to(state);
    std::vector<std::byte> copy(c.layout().total_bytes);
    c.destination.move_away(Layout::aligned, copy);
    EXPECT_EQ(c.destination.state(), State::none);
    EXPECT_TRUE(has_pattern(Bytes(copy).first(kSize), 1));
  }
}

TEST(Destination, BelongsToTheReceiveThatHasNotGivenUp) {
  for (const State state : kStates) {
    Claimed c;
    c.bring_to(state);
    EXPECT_EQ(c.destination.belongs_to(&c.receive),
              state == State::writing || state == State::written);
    EXPECT_FALSE(c.destination.belongs_to(&c.other));
    EXPECT_FALSE(c.destination.belongs_to(nullptr));
    EXPECT_EQ(c.destination.is_written_to(),
              state == State::writing || state == State::kept_writing);
  }
}

TEST(Destination, TakenByItsOwnReceiveTheMessageIsWhereItShallBe) {
  Claimed c;
  c.bring_to(State::written);
  EXPECT_FALSE(c.destination.take(&c.receive));
}

TEST(Destination, TakenByAnotherItLiesInTheMemoryOfTheFirst) {
  for (const State state : {State::written, State::kept}) {
    Claimed c;
    c.bring_to(state);
    const auto lies_in = c.destination.take(&c.other);
    ASSERT_TRUE(lies_in);
    EXPECT_EQ((*lies_in)["x"].data(), c.receive["x"].data());
  }
  Claimed c;
  c.bring_to(State::kept);
  EXPECT_TRUE(c.destination.take(&c.receive)) << "the caller may have moved that dict";
}

TEST(Destination, GivesAPieceForEachLeafAndEachGap) {
  Claimed c;
  TensorDict two;
  two.set("a", Tensor::empty(DType::u8, {3}).value());
  two.set("none", Tensor::empty(DType::u8, {0}).value());
  two.set("b", Tensor::empty(DType::u8, {5}).value());
  ASSERT_TRUE(c.destination.claim(two, two.schema()->layout(Layout::tensordict), c.pieces));
  ASSERT_EQ(c.pieces.size(), 4u);
  EXPECT_EQ(c.pieces[0].data(), two["a"].data());
  EXPECT_EQ(c.pieces[0].size(), 3u);
  EXPECT_EQ(c.pieces[1].size(), 5u) << "padding to 8";
  EXPECT_EQ(c.pieces[2].data(), two["b"].data());
  EXPECT_EQ(c.pieces[3].size(), 3u);
}

TEST(Destination, RefusesLeavesThatDoNotLieInOnePiece) {
  Claimed c;
  TensorDict strided;
  strided.set("x", Tensor::empty(DType::u8, {4, 4}).value().transpose(0, 1).value());
  EXPECT_FALSE(c.destination.claim(strided, strided.schema()->layout(Layout::aligned), c.pieces));
  EXPECT_TRUE(c.pieces.empty());
  EXPECT_EQ(c.destination.state(), State::none);
}

}  // namespace
}  // namespace tendon::test
