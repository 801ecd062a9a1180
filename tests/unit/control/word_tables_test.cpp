// SPDX-License-Identifier: Apache-2.0
// Each table of words has all enumerators of its enum. The compiler's name of a value shows which
// values are enumerators. This layer sees all the other layers.
#include <gtest/gtest.h>

#include <string_view>
#include <tendon/control/worker_status.hpp>
#include <tendon/observe/log.hpp>
#include <tendon/tendon.hpp>
#include <tendon/tensor/memmap.hpp>
#include <utility>

#include "fabric/keys/announcement.hpp"
#include "fabric/zenoh/zenoh_session.hpp"
#include "group/epochs/tuning.hpp"
#include "session/handshake.hpp"
#include "transport/descriptor.hpp"

namespace tendon {
namespace {

// "... [with auto Value = tendon::Overflow::block]"; for another number "(tendon::Overflow)7".
template <auto Value>
constexpr bool is_enumerator() {
  constexpr std::string_view name = __PRETTY_FUNCTION__;
  return name.find('(', name.find(" Value = ")) == std::string_view::npos &&
         name.find("::", name.find(" Value = ")) != std::string_view::npos;
}

constexpr int kNumbers = 64;

template <class Enum, int... kNumber>
void expect_all_words(std::integer_sequence<int, kNumber...>) {
  int enumerators = 0;
  (([&] {
     constexpr auto kValue = static_cast<Enum>(kNumber);
     if (!is_enumerator<kValue>()) return;
     ++enumerators;
     EXPECT_NE(word_of(kValue), "unknown") << "of number " << kNumber;
     EXPECT_EQ(parse_word<Enum>(word_of(kValue)), kValue) << "of number " << kNumber;
   }()),
   ...);
  EXPECT_EQ(enumerators, std::ssize(kWords<Enum>));
}

template <class Enum>
class WordTable : public testing::Test {};

using Enums = testing::Types<
    DeviceKind, DiscoveryNeed, EndReason, FabricEventKind, Fence, GapReason, GroupStatus::State,
    Layout, LogLevel, MapMode, MemberEventKind, Minority, Overflow, PathKind, PlainContent,
    PlainPeers, Priority, Profile, Progress, RecvMode, ReduceKind, Remedy, RosterState, Transport,
    WaitPolicy, WorkerStatus::State, detail::AllGatherAlgorithm, detail::AllReduceAlgorithm,
    detail::BarrierAlgorithm, detail::BoardAllReduce, detail::BroadcastAlgorithm, detail::CopyHint,
    detail::EntityKind, detail::HandshakeState, detail::HelloKind, detail::MessageKind,
    detail::ReduceAlgorithm, detail::ReduceScatterAlgorithm, detail::ZenohMode>;
TYPED_TEST_SUITE(WordTable, Enums);

TYPED_TEST(WordTable, HasAllEnumerators) {
  expect_all_words<TypeParam>(std::make_integer_sequence<int, kNumbers>());
}

}  // namespace
}  // namespace tendon
