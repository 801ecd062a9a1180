// SPDX-License-Identifier: Apache-2.0
// Which group gets which message.
#include "group/membership/mesh_listeners.hpp"

#include <gtest/gtest.h>

#include <tendon/core/rank.hpp>

#include "group/membership/mesh.hpp"

namespace tendon::detail {
namespace {

// A place in a group, or a rank, names a different process from the same place in the mesh.
template <typename Place>
concept NamesAProcessOfTheMesh = requires(const Mesh& mesh, Place place) {
  mesh.here(place);
} || requires(MeshListeners& listeners, Place place) { listeners.forget_place(place); };
static_assert(NamesAProcessOfTheMesh<MeshPlace>);
static_assert(!NamesAProcessOfTheMesh<std::uint32_t>);
static_assert(!NamesAProcessOfTheMesh<GroupRank>);
static_assert(!NamesAProcessOfTheMesh<GlobalRank>);

using Fate = MeshListeners::Fate;

struct Ear final : MeshListener {
  void on_inbound(MeshPlace, InboundMessage&&) override {}
  void on_lost(MeshPlace, const MemberChannel&, const Error&, Absence) override {}
};
InboundMessage word(std::uint64_t group, EnvelopeKind kind = EnvelopeKind::ready) {
  return {{.kind = kind, .group = group}, {}, 0, {}};
}

TEST(MeshListeners, WordsWaitForTheirGroupAndStepsDoNot) {
  MeshListeners listeners;
  EXPECT_EQ(listeners.route({3}, word(7)).fate, Fate::kept);
  EXPECT_EQ(listeners.route({3}, word(7, EnvelopeKind::collective)).fate, Fate::nobody);
  EXPECT_EQ(listeners.route({4}, word(8)).fate, Fate::kept);
  const auto ear = std::make_shared<Ear>();
  const auto early = listeners.add(7, ear);
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].place, MeshPlace{3});
  const auto route = listeners.route({3}, word(7, EnvelopeKind::collective));
  EXPECT_EQ(route.fate, Fate::heard);
  EXPECT_EQ(route.listener, ear);
  EXPECT_EQ(listeners.all().size(), 1u);
}

TEST(MeshListeners, AGroupThatWasLeftIsForgottenWhenAllHaveLeftIt) {
  MeshListeners listeners;
  const auto ear = std::make_shared<Ear>();
  (void)listeners.add(7, ear);
  MemberMask staying;
  staying.set(1);
  staying.set(2);
  listeners.remove(7, staying);
  EXPECT_TRUE(listeners.empty());
  EXPECT_EQ(listeners.route({1}, word(7)).fate, Fate::nobody);
  EXPECT_EQ(listeners.route({1}, word(7, EnvelopeKind::left)).fate, Fate::nobody);
  EXPECT_EQ(listeners.route({2}, word(7)).fate, Fate::nobody);
  listeners.forget_place({2});
  EXPECT_EQ(listeners.route({2}, word(7)).fate, Fate::kept) << "of another group with that number";
}

TEST(MeshListeners, AGroupWhoseHandleIsGoneHearsNothing) {
  MeshListeners listeners;
  (void)listeners.add(7, std::make_shared<Ear>());
  EXPECT_EQ(listeners.route({1}, word(7)).fate, Fate::nobody);
  EXPECT_TRUE(listeners.all().empty());
}

}  // namespace
}  // namespace tendon::detail
