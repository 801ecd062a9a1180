// SPDX-License-Identifier: Apache-2.0
// A Context publishes from its own pool, between two Contexts of this process.
#include "runtime/publishing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <string>
#include <tendon/tensor/tensor_dict.hpp>
#include <thread>
#include <vector>

#include "runtime/context_core.hpp"
#include "support/pipe_pair.hpp"
#include "transport/shared_memory_link.hpp"

namespace tendon::detail {
namespace {

using test::eventually;
using test::kPatience;

constexpr std::uint64_t kFloats = 10'000;
constexpr std::uint64_t kBytes = kFloats * sizeof(float);

TensorDict batch_of(float value) {
  TensorDict batch;
  const std::vector<float> values(kFloats, value);
  batch.set("a", Tensor::of({static_cast<std::int64_t>(kFloats)}, std::span<const float>(values)));
  return batch;
}

class PublishingTest : public testing::Test {
 protected:
  explicit PublishingTest(ContextOptions client = {}) : pair_(connect_pair(test::kShm, client)) {
    // The schema has number 1 from here on.
    EXPECT_TRUE(test::succeeds(pair_.client.send(batch_of(0), kPatience)));
    EXPECT_TRUE(test::succeeds(pair_.server.recv(kPatience)));
  }

  [[nodiscard]] ContextCore& core() { return *ContextCore::of(pair_.client_context); }
  [[nodiscard]] Publishing& publishing() { return core().publishing(); }
  [[nodiscard]] std::string describe() const { return pair_.client_context.describe(); }

  /// Publishes a sample on the pipe; a real publisher would use many pipes.
  Result<Sent> publish(float value) {
    auto slot = publishing().acquire(kBytes);
    if (!slot) return std::move(slot).error();
    std::fill_n(reinterpret_cast<float*>((*slot)->memory().data()), kFloats, value);
    BodyPart part{0, Bytes((*slot)->memory()).first(kBytes), nullptr, kBytes};
    SendOp op;
    op.descriptor.kind = MessageKind::data;
    op.descriptor.pipe = 1;
    op.descriptor.sequence = ++sequence_;
    op.descriptor.schema = 1;
    op.descriptor.payload_bytes = kBytes;
    op.descriptor.layout = Layout::aligned;
    op.parts = {&part, 1};
    op.published = slot->get();
    Link* const link = core().links().all()->front().get();
    auto prepared = publishing().prepare(*link, op, Deadline::never());
    if (prepared && *prepared == Sent::done) show_and_ring({&link, 1});
    return prepared;
  }

  test::PipePair pair_;
  std::uint64_t sequence_ = 100;
};

TEST_F(PublishingTest, ASampleIsATensorDictThatCannotBeWritten) {
  for (const float value : {1.0f, 2.0f}) {  // the segment is shared once
    ASSERT_EQ(publish(value).value(), Sent::done);
    auto received = pair_.server.recv(kPatience);
    ASSERT_TRUE(test::succeeds(received));
    const Tensor leaf = received->find("a").value();
    EXPECT_EQ(leaf.access(), Access::read_only);
    EXPECT_FALSE(leaf.try_span<float>().has_value());
    const auto values = leaf.try_span<const float>();
    ASSERT_TRUE(test::succeeds(values));
    EXPECT_EQ(values->front(), value);
    EXPECT_EQ(values->back(), value);
    EXPECT_EQ(publishing().pool()->stats().holds, 1u);
    EXPECT_EQ(pair_.server.stats().copies, 0u);
  }
  EXPECT_TRUE(core().links().collect_returns(LinkTable::Of::all));
  EXPECT_EQ(publishing().pool()->stats().holds, 0u);
  EXPECT_NE(describe().find("publish pool: 0 slots in use"), std::string::npos) << describe();
}

TEST_F(PublishingTest, AReaderThatClosesItsContextKeepsItsViews) {
  ASSERT_EQ(publish(3).value(), Sent::done);
  auto received = pair_.server.recv(kPatience);
  ASSERT_TRUE(test::succeeds(received));
  ASSERT_TRUE(test::succeeds(pair_.server_context.close(kPatience)));
  ASSERT_TRUE(eventually([&] { return core().links().all()->empty(); }, [] {}));
  EXPECT_NE(describe().find("1 holds of published slots"), std::string::npos) << describe();
  EXPECT_EQ(publishing().pool()->stats().slots.loaned_count, 1u);
  EXPECT_EQ(received->find("a").value().try_span<const float>().value().back(), 3);
  received = TensorDict();
  ASSERT_TRUE(eventually(
      [&] { return describe().find("holds of published slots") == std::string::npos; }, [] {}));
  EXPECT_EQ(publishing().pool()->stats().slots.loaned_count, 0u);
}

// A segment is shared once, and nobody shows a slot of it earlier. A second announcement, or a
// descriptor that arrives first, would end the link.
TEST_F(PublishingTest, ManyThreadsMayPublishFirst) {
  const auto link = core().links().all()->front();
  std::atomic<int> failures{0};
  for (std::uint64_t bytes = 16384; bytes <= 1 << 22; bytes *= 2) {  // a segment each
    std::barrier start(3);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        const auto slot = publishing().acquire(bytes).value();
        BodyPart part{0, Bytes(slot->memory()).first(bytes), nullptr, bytes};
        SendOp op;
        op.descriptor.kind = MessageKind::bytes;
        op.descriptor.pipe = 9;  // an unknown pipe: dropped, and returned
        op.descriptor.payload_bytes = bytes;
        op.parts = {&part, 1};
        op.published = slot.get();
        start.arrive_and_wait();
        const auto prepared = publishing().prepare(*link, op, Deadline::never());
        if (!prepared || *prepared == Sent::later) ++failures;
        Link* const shown = link.get();
        show_and_ring({&shown, 1});
      });
    }
  }
  EXPECT_EQ(failures, 0);
  ASSERT_EQ(publish(5).value(), Sent::done);
  EXPECT_TRUE(test::succeeds(pair_.server.recv(kPatience)));
  EXPECT_FALSE(link->ended());
}

class SmallPool : public PublishingTest {
 protected:
  SmallPool() : PublishingTest({.publish_bytes = 1 << 20}) {}
};

TEST_F(SmallPool, AFullPoolTakesWhatCameBack) {
  std::vector<TensorDict> kept;
  for (int n = 0; n < 12; ++n) {
    EXPECT_EQ(publish(4).value(), Sent::done);
    kept.push_back(pair_.server.recv(kPatience).value());
  }
  EXPECT_EQ(publishing().pool()->stats().holds, 8u) << "half of the pool for one link, then copies";
  std::vector<std::shared_ptr<PublishedSlot>> rest;
  while (rest.size() < 8) rest.push_back(publishing().acquire(kBytes).value());
  EXPECT_TRUE(test::fails_with(publishing().acquire(kBytes), ErrorCode::resource_exhausted,
                               "ContextOptions::publish_bytes"));
  kept.clear();
  EXPECT_TRUE(test::succeeds(publishing().acquire(kBytes)));
}

// A link has holds only if both ends speak 1.1.
TEST(PublishingFeature, IsLeftOutWithAPeerThatSpeaks10) {
  for (const std::uint16_t minor : {std::uint16_t{0}, std::uint16_t{1}}) {
    const test::PipePair pair = connect_pair(test::kShm, {}, {.protocol_minor = minor});
    for (const Context* context : {&pair.client_context, &pair.server_context}) {
      const auto link = ContextCore::of(*context)->links().all()->front();
      EXPECT_EQ(link->shared_memory()->takes_holds(), minor == 1);
    }
  }
}

TEST(PublishingOptions, TheCapIsChecked) {
  EXPECT_TRUE(test::fails_with(Context::create({.publish_bytes = 1000}),
                               ErrorCode::invalid_argument, "a cap of 1000 bytes"));
}

}  // namespace
}  // namespace tendon::detail
