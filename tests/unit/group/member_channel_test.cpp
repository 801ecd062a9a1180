// SPDX-License-Identifier: Apache-2.0
// How long a sender waits, and what it learns about a message that the peer did not get.
#include "group/membership/member_channel.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <thread>
#include <vector>

#include "group/epochs/collectives.hpp"
#include "group/messages/point_to_point.hpp"
#include "memory/segment.hpp"
#include "support/group_cores.hpp"

namespace tendon::detail {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr auto kSoon = 30s;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

/// Two members; this thread makes the progress of both.
class Channels : public testing::TestWithParam<Transport> {
 protected:
  void make(std::uint64_t link_cap_bytes = 0) {
    members_ = std::make_unique<test::GroupCores>(2, GetParam(), link_cap_bytes);
    members_->join();
  }
  GroupCore& core(std::uint32_t rank) { return *members_->cores[rank]; }
  MemberChannel& to(std::uint32_t rank) { return *core(1 - rank).epoch()->channels[{rank}]; }

  /// Queues a message to `rank`.
  std::shared_ptr<Outbound> queue(std::uint32_t rank, std::uint64_t size_bytes) {
    if (memory_.size() < size_bytes) memory_.resize(size_bytes);
    auto outbound = std::make_shared<Outbound>();
    outbound->envelope = {.kind = EnvelopeKind::message,
                          .from = MeshPlace{1 - rank},
                          .group = core(0).id(),
                          .epoch = core(0).epoch()->number(),
                          .count = size_bytes};
    outbound->parts = {{0, Bytes(memory_.data(), size_bytes), nullptr, size_bytes}};
    to(rank).queue(outbound);
    return outbound;
  }
  bool progress_until_done(const Outbound& outbound, MemberChannel& channel) {
    return members_->progress_until([&] {
      channel.advance();
      return outbound.done.load();
    });
  }
  testing::AssertionResult arrives(std::uint32_t rank, std::uint64_t size_bytes) {
    const auto outbound = queue(rank, size_bytes);
    if (!progress_until_done(*outbound, to(rank)))
      return testing::AssertionFailure() << "the window is shut";
    if (outbound->handed_over) return testing::AssertionSuccess();
    return testing::AssertionFailure() << outbound->failure->message();
  }

  /// Takes the messages that have arrived at this member.
  void take(std::uint32_t rank) {
    const auto any = [](const auto&) { return Result<void>(); };
    std::optional<MessageBox::Entry> taken;
    MessageBox::Receive receive;
    core(rank).messages().post(receive);
    ASSERT_TRUE(test::eventually(
        [&] {
          taken = *core(rank).messages().take(receive, any);
          return taken.has_value();
        },
        [&] { members_->contexts[rank].progress(); }));
    taken->inbound.credit();
  }

  std::vector<std::byte> memory_;  // of all messages
  std::unique_ptr<test::GroupCores> members_;
};

// A member that opens a channel to a closed listener is too late. A refused member is not.
TEST_P(Channels, AListenerThatIsClosedHasLeft) {
  struct Case {
    ErrorCode refusal;
    ErrorCode heard;
  };
  for (const auto& [refusal, heard] : {Case{ErrorCode::unreachable, ErrorCode::end_of_stream},
                                       Case{ErrorCode::permission_denied, ErrorCode::peer_lost}}) {
    make();
    const std::string_view why = "because";
    to(1).link().post({.kind = MessageKind::error,
                       .pipe = to(1).pipe(),
                       .tag = static_cast<std::uint32_t>(refusal),
                       .payload_bytes = why.size()},
                      as_bytes(why));
    ASSERT_TRUE(members_->progress_until([&] { return to(0).loss().has_value(); }));
    EXPECT_EQ(to(0).loss()->code, heard);
  }
}

// The window

TEST_P(Channels, WhatIsTakenBackIsNotWaitedFor) {
  make();
  // The window is 64 MiB. A peer that makes no progress takes little of this.
  for (int i = 0; i < 3; ++i) {
    const auto outbound = queue(1, 48 * kMiB);
    if (GetParam() == Transport::tcp) {
      ASSERT_FALSE(outbound->done);
    }
    if (to(1).withdraw(*outbound)) {
      EXPECT_TRUE(outbound->done);
      EXPECT_FALSE(outbound->handed_over);
      EXPECT_EQ(outbound->failure->code, ErrorCode::cancelled);
      continue;
    }
    ASSERT_TRUE(outbound->handed_over);
    take(1);
  }
  EXPECT_TRUE(arrives(1, 1));
}

TEST_P(Channels, WhatIsRefusedIsNotWaitedFor) {
  make(16 * kMiB);
  for (int i = 0; i < 2; ++i) {
    const auto outbound = queue(1, 80 * kMiB);
    ASSERT_TRUE(progress_until_done(*outbound, to(1)));
    EXPECT_FALSE(outbound->handed_over);
    EXPECT_EQ(outbound->failure->code, ErrorCode::message_too_large);
  }
  EXPECT_TRUE(arrives(1, 1));
}

TEST_P(Channels, WhoLeavesAGroupMakesNobodyWait) {
  make();
  EXPECT_TRUE(arrives(1, 40 * kMiB));
  EXPECT_TRUE(arrives(1, 40 * kMiB));
  const auto waiting = queue(1, 1);
  members_->contexts[1].progress();
  EXPECT_FALSE(waiting->done) << "nobody has taken what was sent before";
  core(1).mesh()->add(99, {});  // another group of these members stays
  core(1).leave();
  EXPECT_TRUE(progress_until_done(*waiting, to(1)));
  // Later messages arrive, too.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(arrives(1, 40 * kMiB));
}

// The messages of its predecessor do not use up the newcomer's window.
TEST_P(Channels, ANewcomerHasAWindowOfItsOwn) {
  make();
  // More than the peer acknowledges at once.
  const Tensor large = Tensor::zeros(DType::u8, Shape({9 << 20})).value();
  auto from_old = send_async(members_->cores[1], large, To{GroupRank{0}});
  ASSERT_TRUE(members_->progress_until([&] { return from_old.done(); }));
  const auto before = core(0).epoch()->channels[{1}];
  members_->end(1);
  ASSERT_TRUE(members_->progress_until([&] { return before->lost(); }));
  std::thread newcomer([&] {
    members_->replace(1);
    if (HasFatalFailure()) return;
    const Tensor tensor = Tensor::zeros(DType::u8, Shape({1})).value();
    const auto sent = send(core(1), tensor, To{GroupRank{0}, 7}, kSoon);
    EXPECT_TRUE(sent) << sent.error().message();
  });
  Mesh& mesh = *core(0).mesh();
  EXPECT_TRUE(test::eventually([&] { return mesh.channel({1}) != before; },
                               [&] { members_->contexts[0].progress(); }));
  auto taken = recv(core(0), large, From{GroupRank{1}}, kSoon);
  EXPECT_TRUE(taken) << taken.error().message();
  const auto entered = core(0).enter(kSoon, GroupCore::Of::every_place, Fence::none, "test");
  EXPECT_TRUE(entered) << entered.error().message();
  const Tensor tensor = Tensor::zeros(DType::u8, Shape({1})).value();
  const auto received = recv(core(0), tensor, From{GroupRank{1}, 7}, kSoon);
  EXPECT_TRUE(received) << received.error().message();
  newcomer.join();
}

// Messages that did not arrive

TEST_P(Channels, WhatALostPeerDidNotGetIsNotSent) {
  make();
  std::vector<std::shared_ptr<Outbound>> all;
  for (int i = 0; i < 3; ++i) all.push_back(queue(1, 48 * kMiB));
  ASSERT_FALSE(all.back()->done);
  members_->end(1);
  MemberChannel& channel = to(1);
  ASSERT_TRUE(test::eventually([&] { return channel.lost() && all.back()->done.load(); },
                               [&] { members_->contexts[0].progress(); }));
  EXPECT_FALSE(all.back()->handed_over);
  ASSERT_TRUE(all.back()->failure);
  // A message that is queued after that is not sent either.
  const auto late = queue(1, 1);
  EXPECT_TRUE(late->done);
  EXPECT_FALSE(late->handed_over);
  EXPECT_TRUE(late->failure);
}

class ChannelsOverTcp : public Channels {};

// A member holds unreceived messages only up to the cap of the link. In shared memory the sender
// runs out of slots first.
TEST_P(ChannelsOverTcp, TheWindowIsNotLargerThanTheReceiversCap) {
  make(16 * kMiB);
  EXPECT_TRUE(arrives(1, 10 * kMiB));
  EXPECT_TRUE(arrives(1, 10 * kMiB)) << "one message goes beyond";
  const auto waiting = queue(1, 1);
  for (int round = 0; round < 100; ++round)
    for (Context& context : members_->contexts) context.progress();
  EXPECT_FALSE(waiting->done);
  take(1);
  EXPECT_TRUE(progress_until_done(*waiting, to(1)));
  EXPECT_TRUE(waiting->handed_over);
  EXPECT_FALSE(core(1).epoch()->channels[{0}]->lost());
}

// On one host a board waits for its readers.
TEST_P(ChannelsOverTcp, ABroadcastThatNobodyGotIsNotDone) {
  make();
  const Tensor tensor = Tensor::zeros(DType::u8, Shape({96 << 20})).value();
  const Tensors tensors = tensor;
  auto completion = core(0).calls().start([&](Epoch& epoch, std::uint64_t sequence) {
    return make_operation(core(0), epoch, sequence,
                          {.op = CollectiveOp::broadcast, .output = &tensors}, Hold::keep);
  });
  ASSERT_FALSE(completion.done());
  members_->end(1);
  const auto result = completion.wait(kSoon);
  EXPECT_TRUE(test::fails_with(result, ErrorCode::peer_lost, "rank 1"));
}

INSTANTIATE_TEST_SUITE_P(Paths, Channels, testing::Values(Transport::automatic, Transport::tcp),
                         test::path_name);

INSTANTIATE_TEST_SUITE_P(Tcp, ChannelsOverTcp, testing::Values(Transport::tcp));

// Tensors in pools are read in place. A member whose call was cancelled may change its own tensor
// at once.
void give_up_while_pulling(std::int64_t count) {
  test::GroupCores members(2);
  members.join();
  std::vector<Tensor> tensors;
  std::vector<Tensors> given;
  for (Context& context : members.contexts) {
    const Storage memory = context.pool().allocate(static_cast<std::uint64_t>(count) * 4).value();
    tensors.push_back(Tensor::view(memory, 0, DType::i32, Shape({count})).value());
    for (std::int32_t& element : tensors.back().span<std::int32_t>()) element = 1;
  }
  for (const Tensor& tensor : tensors) given.emplace_back(tensor);
  const auto start = [&](std::uint32_t rank) {
    GroupCore& core = *members.cores[rank];
    return core.calls().start([&, rank](Epoch& epoch, std::uint64_t sequence) {
      return make_operation(
          core, epoch, sequence,
          {.op = CollectiveOp::all_reduce, .reduce = ReduceOp::sum, .output = &given[rank]},
          Hold::keep);
    });
  };
  // The places of the pools are announced first, in messages.
  for (int warm = 0; warm < 2; ++warm) {
    auto first = start(0);
    auto second = start(1);
    ASSERT_TRUE(members.progress_until([&] { return first.done() && second.done(); }));
    ASSERT_TRUE(first.wait(0s));
    ASSERT_TRUE(second.wait(0s));
  }
  // Increases the number of steps before rank 0 cancels, up to the end, which is the only success.
  bool complete = false;
  for (int steps = 0; !complete; ++steps) {
    for (const Tensor& tensor : tensors)
      for (std::int32_t& element : tensor.span<std::int32_t>()) element = 1;
    auto first = start(0);
    auto second = start(1);
    for (int step = 0; step < steps; ++step) members.cores[step % 2]->calls().progress();
    complete = first.done();
    if (!complete) {
      first.cancel();
      members.cores[0]->calls().progress();
    }
    ASSERT_TRUE(first.done());
    for (std::int32_t& element : tensors[0].span<std::int32_t>()) element = 77;
    members.cores[1]->calls().progress();
    members.cores[1]->calls().progress();
    ASSERT_TRUE(members.progress_until([&] { return second.done(); }));
    if (second.wait(0s)) {
      const auto result = tensors[1].span<const std::int32_t>();
      EXPECT_EQ(std::count(result.begin(), result.end(), 2), count) << "after " << steps;
    }
    if (complete) break;
    std::thread other([&] {
      EXPECT_TRUE(members.cores[1]->enter(kSoon, GroupCore::Of::those_left, Fence::none, "test"));
    });
    ASSERT_TRUE(members.cores[0]->enter(kSoon, GroupCore::Of::those_left, Fence::none, "test"));
    other.join();
    ASSERT_LT(steps, 100);
  }
}
// In the end each member is ahead of the other, in one of the two sizes.
TEST(Pulling, WhatSomebodyGaveUpIsNotTakenForItsShare) {
  give_up_while_pulling(1 << 19);
  give_up_while_pulling(1 << 20);
}

// Reading tensors in place is only the fastest way.
TEST(Pulling, APoolThatCannotBeMappedCostsNoMember) {
  test::GroupCores members(2);
  members.join();
  constexpr std::int64_t kCount = 1 << 20;
  std::vector<Tensor> tensors;
  std::vector<Tensors> given;
  for (Context& context : members.contexts) {
    const Storage memory = context.pool().allocate(kCount * 4).value();
    tensors.push_back(Tensor::view(memory, 0, DType::i32, Shape({kCount})).value());
    for (std::int32_t& element : tensors.back().span<std::int32_t>()) element = 1;
  }
  for (const Tensor& tensor : tensors) given.emplace_back(tensor);
  const auto all_reduce = [&] {
    std::vector<Completion<void>> calls;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
      calls.push_back(members.cores[rank]->calls().start([&](Epoch& epoch, std::uint64_t sequence) {
        return make_operation(
            *members.cores[rank], epoch, sequence,
            {.op = CollectiveOp::all_reduce, .reduce = ReduceOp::sum, .output = &given[rank]},
            Hold::keep);
      }));
    }
    EXPECT_TRUE(members.progress_until([&] { return calls[0].done() && calls[1].done(); }));
    for (auto& call : calls) {
      const auto result = call.wait(0s);
      EXPECT_TRUE(result) << result.error().message();
    }
  };
  const auto epoch = members.cores[1]->epoch();
  MemberChannel& channel = *epoch->channels[{0}];
  channel.on_segment_failed(99, Error{ErrorCode::resource_exhausted, "test", "no room", ENOMEM});
  all_reduce();
  EXPECT_FALSE(channel.lost());
  for (const Tensor& tensor : tensors) EXPECT_EQ(tensor.item<std::int32_t>({kCount - 1}), 2);
  // An error that is found in the middle of an operation is the error of that operation.
  const PoolReader read = GroupCore::pool_reader(epoch);
  const auto on_its_way = read(0, {98, 0}, 8);
  ASSERT_TRUE(on_its_way);
  EXPECT_EQ(*on_its_way, nullptr);
  EXPECT_TRUE(test::fails_with(read(0, {99, 0}, 8), ErrorCode::resource_exhausted, "no room"));
  const Flat one = Flat::make(tensors[1], Use::read, Hold::borrow, "test").value();
  EXPECT_EQ(members.cores[1]->pool_place(*epoch, one).segment_id, 0u) << "the others wait for it";
}

// Memory that a peer can still write to is neither kept nor read twice.
TEST(MemberChannel, AControlMessageInThePeersMemoryIsCopied) {
  test::GroupCores members(2);
  members.join();
  MemberChannel& channel = *members.cores[0]->epoch()->channels[{1}];
  const auto say = [&](std::uint64_t payload_bytes) {
    const Envelope envelope{.kind = EnvelopeKind::ready, .from = GroupPlace{1}, .group = 7};
    const auto slot = std::make_shared<std::vector<std::byte>>(payload_bytes + sizeof envelope);
    std::memcpy(slot->data() + payload_bytes, &envelope, sizeof envelope);
    Descriptor descriptor;
    descriptor.kind = MessageKind::bytes;
    descriptor.tag = static_cast<std::uint32_t>(envelope.kind);
    descriptor.header_bytes = sizeof envelope;
    descriptor.payload_bytes = payload_bytes;
    channel.on_message(
        {descriptor,
         {.place = IncomingBody::Place::peer_slot, .owner = slot, .data = slot->data()},
         nullptr});
    return slot.use_count();
  };
  // The words wait, because their group does not exist here yet.
  EXPECT_EQ(say(MemberChannel::kMaxPostBytes), 1);
  EXPECT_FALSE(channel.lost());
  EXPECT_EQ(say(MemberChannel::kMaxPostBytes + 1), 1);
  EXPECT_TRUE(channel.lost());
}

// Words to groups

struct Listener final : MeshListener {
  void on_inbound(MeshPlace, InboundMessage&&) override { ++heard; }
  void on_lost(MeshPlace, const MemberChannel&, const Error&, Absence) override {}
  int heard = 0;
};

TEST(Mesh, GroupsThatAreGoneLeaveNothingBehind) {
  test::GroupCores members(2);
  members.join();
  Mesh& mesh = *members.cores[0]->mesh();
  MemberChannel& channel = *mesh.channel({1});
  MemberMask other;
  other.set(1);
  constexpr std::uint64_t kFirst = 1'000'000;
  const auto hear = [&](EnvelopeKind kind, std::uint64_t group) {
    mesh.on_inbound(
        channel,
        {{.kind = kind, .from = GroupPlace{1}, .group = group}, {}, 0, channel.weak_from_this()});
  };
  // As many words as may wait.
  for (std::uint64_t group = kFirst; group < kFirst + 70'000; ++group) {
    EXPECT_FALSE(mesh.remove(group, other));
    hear(EnvelopeKind::abort, group);
    hear(EnvelopeKind::left, group);
  }
  hear(EnvelopeKind::ready, 7);
  const auto listener = std::make_shared<Listener>();
  mesh.add(7, listener);
  EXPECT_EQ(listener->heard, 1);
  EXPECT_FALSE(channel.lost());
}

TEST(Mesh, WordsToGroupsThatNobodyMakesAreAFault) {
  test::GroupCores members(2);
  members.join();
  Mesh& mesh = *members.cores[0]->mesh();
  MemberChannel& channel = *mesh.channel({1});
  for (std::uint64_t group = 1; group <= 65536; ++group)
    mesh.on_inbound(channel, {{.kind = EnvelopeKind::ready, .from = GroupPlace{1}, .group = group},
                              {},
                              0,
                              channel.weak_from_this()});
  EXPECT_FALSE(channel.lost());
  mesh.on_inbound(channel, {{.kind = EnvelopeKind::ready, .from = GroupPlace{1}, .group = 1},
                            {},
                            0,
                            channel.weak_from_this()});
  EXPECT_TRUE(channel.lost());
}

TEST(Mesh, WordsToGroupsThatNobodyMakesHaveALimitInBytes) {
  test::GroupCores members(2);
  members.join();
  Mesh& mesh = *members.cores[0]->mesh();
  MemberChannel& channel = *mesh.channel({1});
  constexpr std::uint64_t kBytes = MemberChannel::kMaxPostBytes;
  int words = 0;
  for (; !channel.lost() && words < 65536; ++words) {
    mesh.on_inbound(channel, {{.kind = EnvelopeKind::abort, .from = GroupPlace{1}, .group = 7},
                              {},
                              kBytes,
                              channel.weak_from_this()});
  }
  EXPECT_TRUE(channel.lost());
  EXPECT_GT(words, 1000);
  EXPECT_LE(words * kBytes, 32 * kMiB);
  // A listener of the group takes them: there is room again.
  const auto listener = std::make_shared<Listener>();
  mesh.add(7, listener);
  EXPECT_EQ(listener->heard, words - 1);
}

// Boards are made and removed with epochs.
TEST(Mesh, OnlySegmentsThatAreStillMappedCount) {
  test::GroupCores members(2);
  members.join();
  Mesh& mesh = *members.cores[0]->mesh();
  Mesh& other = *members.cores[1]->mesh();
  for (int i = 0; i < 17'000; ++i) {
    const auto segment = Segment::create(4096, Writers::maker_only).value();
    const std::uint32_t id = mesh.name_segment(segment);
    ASSERT_TRUE(members.progress_until([&] { return mesh.publish({1}, segment).value(); })) << i;
    ASSERT_TRUE(members.progress_until([&] {
      return other.channel({0})->published().find(id) != nullptr;
    })) << i;
    other.channel({0})->published().remove(id);
    mesh.forget_segment(segment);
  }
  EXPECT_FALSE(mesh.channel({1})->lost());
  EXPECT_FALSE(other.channel({0})->lost());
}

}  // namespace
}  // namespace tendon::detail
