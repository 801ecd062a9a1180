// SPDX-License-Identifier: Apache-2.0
// A number of one kind finds its element; a number of another kind finds none.
#include "group/membership/numbered.hpp"

#include <gmock/gmock.h>

#include <concepts>

#include "group/epochs/epoch.hpp"

namespace tendon::detail {
namespace {

using testing::ElementsAre;

template <class A, class B>
concept TakenFor = std::convertible_to<A, B> || std::constructible_from<B, A>;
static_assert(!TakenFor<GroupRank, GroupPlace> && !TakenFor<GroupPlace, GroupRank>);
static_assert(!TakenFor<MeshPlace, GroupPlace> && !TakenFor<GroupPlace, MeshPlace>);
static_assert(!TakenFor<MeshPlace, GroupRank> && !TakenFor<GlobalRank, GroupPlace>);
template <class Number>
concept IsARank = requires(const Epoch& epoch, Number number) { epoch.channels[number]; };
static_assert(IsARank<GroupRank> && !IsARank<GroupPlace> && !IsARank<MeshPlace>);
static_assert(!IsARank<std::uint32_t>);

TEST(Numbered, EachNumberNamesItsElement) {
  ByPlace<int> numbered{7, 8, 7};
  EXPECT_EQ(numbered[GroupPlace{1}], 8);
  std::vector<GroupPlace> places;
  for (const GroupPlace place : numbered.numbers()) places.push_back(place);
  EXPECT_THAT(places, ElementsAre(GroupPlace{0}, GroupPlace{1}, GroupPlace{2}));
  EXPECT_EQ(numbered.find(7), GroupPlace{0});
  EXPECT_EQ(numbered.find(9), std::nullopt);
}

TEST(Numbered, RanksCloseUpAndPlacesStay) {
  Epoch epoch;
  epoch.places = {GroupPlace{0}, GroupPlace{2}, GroupPlace{3}};
  EXPECT_EQ(epoch.rank_at({2}), GroupRank{1});
  EXPECT_EQ(epoch.rank_at({1}), std::nullopt);
  EXPECT_EQ(epoch.places[GroupRank{2}], GroupPlace{3});
}

}  // namespace
}  // namespace tendon::detail
