// SPDX-License-Identifier: Apache-2.0
// Which process is admitted before it has said which member it is, and which has to make room.
#include "group/membership/strangers.hpp"

#include <gmock/gmock.h>

#include <thread>
#include <vector>

#include "runtime/acceptor.hpp"
#include "support/group_cores.hpp"

namespace tendon::detail {
namespace {

using namespace std::chrono_literals;

constexpr auto kSoon = 30s;

/// Channels on real links: rank 0 has one to each of the others.
class StrangersAtADoor : public testing::Test {
 protected:
  void SetUp() override { members_.join(); }
  std::shared_ptr<MemberChannel> open(std::uint32_t from) {
    const auto& channel = members_.cores[0]->epoch()->channels[{from}];
    return std::make_shared<MemberChannel>(members_.cores[0]->context(),
                                           channel->link().shared_from_this(), next_pipe_++,
                                           std::weak_ptr<ChannelOwner>());
  }
  std::uint32_t next_pipe_ = 1000;
  test::GroupCores members_{3};
  Strangers strangers_;
};

TEST_F(StrangersAtADoor, OneLinkTakesNobodyElsesPlace) {
  const auto other = open(2);
  EXPECT_EQ(strangers_.add(other), nullptr);
  std::vector<std::shared_ptr<MemberChannel>> of_one;
  for (std::size_t i = 0; i < 3 * Strangers::kMostOfLink; ++i) {
    of_one.push_back(open(1));
    const auto gone = strangers_.add(of_one.back());
    EXPECT_EQ(gone, i < Strangers::kMostOfLink ? nullptr : of_one[i - Strangers::kMostOfLink]);
  }
  EXPECT_EQ(strangers_.all().size(), Strangers::kMostOfLink + 1);
  EXPECT_EQ(strangers_.take(*other), other);
  EXPECT_EQ(strangers_.take(*other), nullptr);
}

TEST_F(StrangersAtADoor, AClaimIsOfTheLastOneThatMadeIt) {
  const auto first = open(1);
  const auto second = open(2);
  for (const auto& channel : {first, second}) (void)strangers_.add(channel);
  strangers_.claim(*first, {.place = 1, .address = "a", .group = 5});
  strangers_.claim(*second, {.place = 1, .address = "b", .group = 6});
  strangers_.claim(*open(1), {.place = 2, .address = "not a stranger", .group = 7});
  EXPECT_FALSE(strangers_.take_claim(2));
  const auto claimed = strangers_.take_claim(1);
  ASSERT_TRUE(claimed);
  EXPECT_EQ(claimed->channel, second);
  EXPECT_EQ(claimed->claim.address, "b");
  EXPECT_EQ(claimed->claim.group, 6u);
  EXPECT_FALSE(strangers_.take_claim(1));
  EXPECT_EQ(strangers_.take(*second), second) << "it is none of the members yet";
}

TEST_F(StrangersAtADoor, AHelloWaitsForOneWhoAsksForIt) {
  const auto first = open(1);
  (void)strangers_.add(first);
  strangers_.keep_hello(*first, {.from = MeshPlace{1}});
  const auto hellos = strangers_.take_hellos();
  ASSERT_EQ(hellos.size(), 1u);
  EXPECT_EQ(hellos[0].channel, first);
  EXPECT_EQ(hellos[0].envelope.from.in_mesh(), MeshPlace{1});
  EXPECT_TRUE(strangers_.take_hellos().empty());
  EXPECT_EQ(strangers_.all().size(), 1u);
}

// At the mesh

TEST(MeshDoor, WhoNeverSaysWhoItIsKeepsNobodyOut) {
  test::GroupCores members(2);
  members.join();
  Mesh& mesh = *members.cores[0]->mesh();
  const auto link = members.cores[0]->epoch()->channels[{1}]->link().shared_from_this();
  std::vector<std::shared_ptr<MessageSink>> opened;
  for (std::uint32_t pipe = 1000; pipe < 1600; ++pipe) {
    auto sink = mesh.on_open(link, {.kind = MessageKind::open, .pipe = pipe}, {});
    ASSERT_TRUE(sink) << sink.error().message();
    opened.push_back(*std::move(sink));
  }
  members.contexts[0].progress();
  const auto lost = [](const auto& sink) { return static_cast<MemberChannel&>(*sink).lost(); };
  EXPECT_TRUE(lost(opened.front())) << "the oldest gives way";
  EXPECT_FALSE(lost(opened.back()));
  EXPECT_EQ(std::ranges::count_if(opened, lost), 600 - 8);
}

/// A rank 0 that has no room for now.
struct Busy final : OpenHandler {
  Result<void> may_open() override { return {}; }
  Result<std::shared_ptr<MessageSink>> on_open(std::shared_ptr<Link>, const Descriptor&,
                                               Bytes) override {
    ++turned_away;
    return Error{ErrorCode::server_busy, "test", "no room"};
  }
  void on_context_closed() override {}
  std::atomic<int> turned_away{0};
};

TEST(MeshDoor, WhoIsTurnedAwayTriesAgain) {
  const std::string address = test::fresh_group_address();
  Context busy = Context::create().value();
  const auto handler = std::make_shared<Busy>();
  auto acceptor = Acceptor::bind(ContextCore::of(busy), address, {Profile::local}, handler);
  ASSERT_TRUE(acceptor) << acceptor.error().message();
  std::vector<std::thread> threads;
  std::vector<Context> contexts;
  for (int rank = 0; rank < 2; ++rank) contexts.push_back(Context::create().value());
  const auto join = [&](std::uint32_t rank) {
    auto group = Group::join(contexts[rank], Rendezvous::at(address, GroupRank{rank}, 2), kSoon);
    EXPECT_TRUE(group) << group.error().message();
    if (group) {
      EXPECT_TRUE(group->barrier(kSoon));
    }
  };
  threads.emplace_back(join, 1);
  EXPECT_TRUE(test::eventually([&] { return handler->turned_away > 0; }));
  (*acceptor)->close();
  threads.emplace_back(join, 0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tendon::detail
