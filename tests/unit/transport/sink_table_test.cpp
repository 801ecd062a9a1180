// SPDX-License-Identifier: Apache-2.0
#include "transport/sink_table.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace tendon::detail {
namespace {

class CountingSink final : public MessageSink {
 public:
  void on_message(Incoming&& incoming) override {
    ++messages;
    if (on_each) on_each(incoming.descriptor);
  }
  bool claim_destination(const Descriptor&, std::vector<MutableBytes>&) override { return false; }
  bool admits(const Descriptor&) override { return true; }
  void on_transfer_ended(const Transfer&) override {}
  void on_link_failed(const Error& error) override {
    failures.push_back(error.code);
    if (at_end) at_end();
  }
  void on_death_proved() override { ++proofs; }

  int messages = 0;
  int proofs = 0;
  std::vector<ErrorCode> failures;
  std::function<void(const Descriptor&)> on_each;
  std::function<void()> at_end;
};

class SinkTableTest : public testing::Test {
 protected:
  static Incoming message_for(std::uint32_t pipe) { return {{.pipe = pipe}, {}, nullptr}; }

  const Error error_{ErrorCode::peer_lost, "test", "gone"};
  const std::shared_ptr<CountingSink> one_ = std::make_shared<CountingSink>();
  const std::shared_ptr<CountingSink> two_ = std::make_shared<CountingSink>();
  SinkTable table_;
};

TEST_F(SinkTableTest, MessagesGoToTheirPipeAndAreDroppedWithoutOne) {
  table_.attach(1, one_);
  table_.attach(2, two_);
  for (const std::uint32_t pipe : {1u, 1u, 2u, 1u, 3u}) table_.dispatch(message_for(pipe));
  EXPECT_EQ(one_->messages, 3);
  EXPECT_EQ(two_->messages, 1);
  EXPECT_EQ(table_.dropped_count(), 1u);
  EXPECT_EQ(table_.find(3), nullptr);
}

TEST_F(SinkTableTest, WhatTheLastMessageFoundIsForgottenWithItsPipe) {
  table_.attach(1, one_);
  table_.dispatch(message_for(1));
  table_.attach(1, two_);
  table_.dispatch(message_for(1));
  EXPECT_EQ(two_->messages, 1) << "another sink stands there now";
  table_.detach(1);
  EXPECT_EQ(table_.find(1), nullptr);
  EXPECT_FALSE(table_.contains(1));
  EXPECT_EQ(table_.count(), 0u);
}

TEST_F(SinkTableTest, DroppedMessageGivesBackItsBodyAtOnce) {
  auto body = std::make_shared<int>(1);
  Incoming incoming = message_for(7);
  incoming.body.owner = body;
  table_.dispatch(std::move(incoming));
  EXPECT_EQ(body.use_count(), 1);
}

TEST_F(SinkTableTest, SinkMayDetachItselfAndAttachAnotherInItsMessage) {
  table_.attach(1, one_);
  one_->on_each = [&](const Descriptor&) {
    table_.detach(1);
    table_.attach(2, two_);
  };
  table_.dispatch(message_for(1));
  table_.dispatch(message_for(2));
  EXPECT_EQ(two_->messages, 1);
  EXPECT_EQ(table_.find(1), nullptr);
}

TEST_F(SinkTableTest, TheLastWordGoesToAllAndLetsThemGo) {
  table_.attach(1, one_);
  table_.attach(2, two_);
  one_->at_end = [&] { table_.detach(1); };
  table_.end(error_);
  table_.end(error_);
  EXPECT_EQ(one_->failures, std::vector{ErrorCode::peer_lost});
  EXPECT_EQ(two_->failures, std::vector{ErrorCode::peer_lost});
  EXPECT_EQ(table_.count(), 0u);
  EXPECT_EQ(one_.use_count(), 1);
  table_.dispatch(message_for(1));
  EXPECT_EQ(one_->messages, 0);
}

TEST_F(SinkTableTest, ProofOfDeathIsToldOnceToThoseWhoWaitForItAndStillExist) {
  auto gone = std::make_shared<CountingSink>();
  table_.attach(1, one_);
  table_.attach(3, gone);
  table_.await_proof();
  table_.end(error_);
  table_.attach(2, two_);
  EXPECT_EQ(gone.use_count(), 1) << "they are not kept for it";
  gone.reset();
  table_.prove_death();
  table_.prove_death();
  EXPECT_EQ(one_->proofs, 1);
  EXPECT_EQ(two_->proofs, 0);
}

TEST_F(SinkTableTest, TakenSinksHearNothing) {
  table_.attach(1, one_);
  EXPECT_NE(table_.find(1), nullptr);
  const SinkTable::Sinks taken = table_.take_all();
  EXPECT_EQ(taken.size(), 1u);
  EXPECT_EQ(table_.find(1), nullptr);
  EXPECT_TRUE(one_->failures.empty());
}

}  // namespace
}  // namespace tendon::detail
