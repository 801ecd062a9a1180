// SPDX-License-Identifier: Apache-2.0
#include "runtime/link_table.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <tendon/session/limits.hpp>
#include <utility>

#include "support/expect.hpp"

namespace tendon::v0::detail {
namespace {

using Clock = LinkTable::Clock;

PeerIdentity numbered(std::uint64_t number) {
  PeerIdentity identity;
  identity.name = "peer";
  std::memcpy(identity.context.bytes.data(), &number, sizeof number);
  return identity;
}

/// A link of which the table sees no more than counters.
class CountedLink final : public Link {
 public:
  explicit CountedLink(std::uint64_t number)
      : Link({}, {PathKind::shm, "a test asked for it"}, numbered(number), 1 << 20, 1 << 20) {
    agree(Features::of_minor(kProtocolMinor), LinkRole::acceptor);
  }

  Result<std::shared_ptr<LoanedSlot>> acquire(std::uint64_t) override { return no(); }
  bool owns(const LoanedSlot&) const override { return false; }
  Result<Sent> send(SendOp&, Deadline) override { return no(); }
  bool withdraw(SendOp&) override { return true; }
  void post(const Descriptor&) override {}
  void post(const Descriptor&, Bytes) override {}
  bool drained() override { return true; }
  bool has_input() const noexcept override { return false; }
  bool poll() override { return false; }
  bool lend(const IncomingBody&) noexcept override { return false; }
  Result<void> start(Reactor&, LinkObserver&) override { return {}; }
  void announce_sleep() noexcept override {}
  void announce_awake() noexcept override {}
  void tick(Clock::time_point) override {}
  void shut_down() override {}
  void on_ready(int, std::uint32_t) override {}
  bool collect_returns() override { return std::exchange(stats_.holds, 0) != 0; }
  LinkStats stats() const override { return stats_; }

  LinkStats stats_;

 protected:
  void on_failed(Death) override {}

 private:
  static Error no() { return {ErrorCode::not_supported, "test", "not in this test"}; }
};

struct Table {
  std::shared_ptr<CountedLink> add() {
    auto link = std::make_shared<CountedLink>(++count);
    if (!links.insert(link, Proofs::of_this_user())) return nullptr;
    links.started(*link);
    return link;
  }
  const ContextId self{};
  LinkTable links{self};
  std::uint64_t count = 0;
};

TEST(LinkTable, AnEndedLinkWithHoldsCountsAsALink) {
  Table table;
  const auto first = table.add();
  first->stats_.holds = 3;
  table.links.note_ended(*first, LinkTable::Memory::held);
  EXPECT_TRUE(table.links.all()->empty());
  EXPECT_NE(table.links.describe().find("3 holds of published slots"), std::string::npos);
  for (std::size_t i = 1; i < kMaxLinksPerContext; ++i) ASSERT_NE(table.add(), nullptr) << i;
  EXPECT_EQ(table.add(), nullptr);
  EXPECT_TRUE(table.links.candidates_to_end(numbered(77'777).context).has_value());
  // Not before a tick, which asks it.
  EXPECT_TRUE(table.links.collect_returns(LinkTable::Of::ended_with_holds));
  EXPECT_EQ(table.add(), nullptr);
  (void)table.links.take_tick(Clock::now());
  EXPECT_NE(table.add(), nullptr);
}

TEST(LinkTable, AnEndedLinkWithHoldsIsLookedAfterAndNeverGivesWay) {
  Table table;
  const auto holder = table.add();
  holder->stats_.holds = 1;
  table.links.note_ended(*holder, LinkTable::Memory::held);
  EXPECT_NE(table.links.next_tick().time_point(), Deadline::never().time_point());
  for (std::size_t i = 0; i < 2 * kMaxQuarantinedLinks; ++i) {
    const auto link = table.add();
    link->stats_.slots.quarantined_count = 1;
    table.links.note_ended(*link, LinkTable::Memory::quarantined);
  }
  EXPECT_EQ(holder.use_count(), 2);
  EXPECT_TRUE(table.links.collect_returns(LinkTable::Of::ended_with_holds));
  EXPECT_FALSE(table.links.collect_returns(LinkTable::Of::ended_with_holds));
  (void)table.links.take_tick(Clock::now());
  EXPECT_EQ(holder.use_count(), 1);
}

}  // namespace
}  // namespace tendon::v0::detail
