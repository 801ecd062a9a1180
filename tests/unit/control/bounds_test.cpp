// SPDX-License-Identifier: Apache-2.0
// The limits of the memory that an admitted worker can make its controller hold by its requests and
// words.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "control/flows/resending.hpp"
#include "control/relay/store_book.hpp"
#include "control/relay/word.hpp"
#include "support/pipe_pair.hpp"
#include "support/storage_of.hpp"

namespace tendon::test {
namespace {

using detail::FlowSender;
using detail::PipeListener;
using detail::StoreBook;
using detail::WorkerPipe;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

Result<v1::Word> read(const v1::Word& word) {
  const std::string bytes = word.SerializeAsString();
  return detail::read_word(as_bytes(bytes));
}

TEST(Words, AreAsLargeAsTheirKindMayBe) {
  v1::Word resent;
  resent.mutable_resent()->set_payload(std::string(kMaxStepPayloadBytes, 'x'));
  EXPECT_TRUE(succeeds(read(resent)));
  resent.mutable_resent()->set_payload(std::string(kMaxStepPayloadBytes + kMaxWordBytes, 'x'));
  EXPECT_TRUE(fails_with(read(resent), ErrorCode::protocol_violation, "no word"));

  v1::Word failed;
  failed.mutable_step_failed()->set_error(std::string(kMaxWordBytes - 100, 'x'));
  EXPECT_TRUE(succeeds(read(failed)));
  failed.mutable_step_failed()->set_error(std::string(kMaxWordBytes, 'x'));
  EXPECT_TRUE(fails_with(read(failed), ErrorCode::protocol_violation, "at most 262144"));
  // The limit also holds beside a member that may be large.
  std::string both = failed.SerializeAsString();
  v1::Word large;
  large.mutable_resent()->set_payload(std::string(kMaxWordBytes, 'x'));
  both += large.SerializeAsString();
  EXPECT_TRUE(fails_with(detail::read_word(as_bytes(both)), ErrorCode::protocol_violation));
  EXPECT_TRUE(fails_with(detail::read_word(as_bytes(std::string(kMaxWordBytes + 1, '\xFF'))),
                         ErrorCode::protocol_violation));
}

TEST(Words, AHeartbeatHasFewEntriesAndBytes) {
  v1::Word word;
  v1::Heartbeat& heartbeat = *word.mutable_heartbeat();
  for (std::uint32_t flow = 0; flow < kMaxHeartbeatEntries; ++flow)
    (*heartbeat.mutable_sent())[flow] = UINT64_MAX;
  EXPECT_TRUE(succeeds(read(word)));
  (*heartbeat.mutable_applied())[0] = 1;
  EXPECT_TRUE(fails_with(read(word), ErrorCode::protocol_violation, "1025 entries"));
  heartbeat.Clear();
  heartbeat.set_waiting(std::string(kMaxHeartbeatBytes - 100, 'x'));
  EXPECT_TRUE(succeeds(read(word)));
  heartbeat.set_waiting(std::string(kMaxHeartbeatBytes, 'x'));
  EXPECT_TRUE(fails_with(read(word), ErrorCode::protocol_violation, "a heartbeat of"));
}

/// A peer that fills a flow faster than it is read.
struct EndlessSockets {
  std::string message;
  std::size_t taken = 0;
  std::optional<Storage> take() {
    ++taken;
    return storage_of(message);
  }
};

TEST(Flows, OneLookTakesNoMoreThanItMayOfAFlood) {
  EndlessSockets small{"no message"};
  EXPECT_EQ(detail::take_some(small, {}).refused, detail::kTakenAtOnce);
  EndlessSockets large{std::string(kMiB, 'x')};
  (void)detail::take_some(large, {});
  EXPECT_LE(large.taken, detail::kTakenBytesAtOnce / kMiB);
}

class Bounds : public testing::Test {
 protected:
  static constexpr std::uint64_t kCap = 8 * kMiB;

  std::shared_ptr<WorkerPipe> worker() {
    auto [here, there] = another_pipe(pair_);
    theirs_.push_back(std::move(there));
    return std::make_shared<WorkerPipe>(std::move(here), std::weak_ptr<PipeListener>());
  }
  /// The controller's next word to worker `i`.
  v1::Word hears(std::size_t i) {
    const auto message = theirs_[i].recv_message(kPatience);
    EXPECT_TRUE(succeeds(message));
    if (!message.has_value()) return {};
    auto word = detail::read_word(message->bytes.bytes());
    EXPECT_TRUE(succeeds(word));
    return word.has_value() ? *std::move(word) : v1::Word();
  }
  bool hears_nothing(std::size_t i) {
    return fails_with(theirs_[i].recv_message(kBriefly), ErrorCode::timeout);
  }

  PipePair pair_ = connect_pair(kShm, {.link_cap_bytes = kCap}, {.link_cap_bytes = kCap});
  std::vector<Pipe> theirs_;
};

TEST_F(Bounds, RequestsOfOneThatReadsNothingKeepNoMoreThanWordsMay) {
  const auto asking = worker();
  FlowSender flow;
  constexpr std::uint64_t kMessages = 60;
  for (std::uint64_t sequence = 1; sequence <= kMessages; ++sequence) {
    v1::StepMessage message;
    message.set_sequence(sequence);
    message.set_payload(std::string(kMiB, 'x'));
    flow.keep(detail::encode(message));
  }
  v1::ResendRequest request;
  request.set_first(1);
  std::uint64_t sent = 0;
  for (int i = 0; i < 200; ++i) sent += detail::send_again(flow, request, v1::Word(), *asking);
  EXPECT_GE(sent, kMessages);
  EXPECT_LE(sent, (kMaxUnsentWordBytes + 2 * kCap) / kMiB);
  // The worker lives, and gets the messages that it asked for when it reads.
  for (std::uint64_t sequence = 1; sequence <= kMessages; ++sequence) {
    ASSERT_EQ(hears(0).resent().sequence(), sequence);
  }
  EXPECT_GT(detail::send_again(flow, request, v1::Word(), *asking), 0U);
}

TEST_F(Bounds, AWorkerThatFillsItsPartOfTheStoreIsInNobodysWay) {
  constexpr std::uint32_t kWorkers = 4;
  StoreBook store(kWorkers);
  const auto greedy = worker();
  const auto other = worker();
  const auto asks = worker();
  for (std::size_t i = 0; i < 2 * kMaxStoreKeys; ++i)
    store.set(greedy, "key " + std::to_string(i), std::string(kMaxStoreValueBytes, 'x'));
  store.set(greedy, std::string(kMaxStoreKeyBytes + 1, 'k'), "too long a key");
  store.set(other, "rank0", "here");
  store.get(asks, "rank0");
  EXPECT_EQ(hears(2).store_value().value(), "here");
  // This much is stored; the same key again costs nothing more.
  const std::size_t most = kMaxStoreBytes / kWorkers / (kMaxStoreValueBytes + 8);
  store.get(asks, "key " + std::to_string(most - 20));
  EXPECT_EQ(hears(2).store_value().value().size(), kMaxStoreValueBytes);
  store.set(greedy, "key 0", "short");
  store.get(asks, "key 0");
  EXPECT_EQ(hears(2).store_value().value(), "short");
  store.get(asks, "key " + std::to_string(most + 1));
  EXPECT_TRUE(hears_nothing(2));
  // The store forgets a worker that has ended, and a replacement sets the key again.
  store.forget(greedy);
  const auto replacement = worker();
  store.get(asks, "key 1");
  EXPECT_TRUE(hears_nothing(2));
  store.set(replacement, "key 1", "again");
  EXPECT_EQ(hears(2).store_value().value(), "again");
}

TEST_F(Bounds, AWorkerThatAsksForMuchWaitsForLittle) {
  StoreBook store(2);
  const auto greedy = worker();
  const auto other = worker();
  for (std::size_t i = 0; i < 2 * kMaxStoreQuestions; ++i)
    store.get(greedy, "key " + std::to_string(i));
  store.get(other, "key 1");
  for (std::size_t i = 0; i < 2 * kMaxStoreQuestions; ++i)
    store.set(other, "key " + std::to_string(i), "v");
  for (std::size_t i = 0; i < kMaxStoreQuestions; ++i)
    EXPECT_EQ(hears(0).store_value().key(), "key " + std::to_string(i));
  EXPECT_TRUE(hears_nothing(0));
  EXPECT_EQ(hears(1).store_value().key(), "key 1");
  store.get(greedy, "later");
  store.set(other, "later", "v");
  EXPECT_EQ(hears(0).store_value().key(), "later") << "what was answered made room";
}

TEST_F(Bounds, TextsOfARosterAreForgottenWithIt) {
  StoreBook store(1);
  const auto one = worker();
  for (int roster = 1; roster <= 3; ++roster) {
    for (std::size_t i = 0; i < kMaxStoreKeys; ++i)
      store.set(one, "relay/" + std::to_string(roster) + "/" + std::to_string(i), "v");
    store.get(one, "relay/" + std::to_string(roster) + "/7");
    EXPECT_EQ(hears(0).store_value().value(), "v");
    store.forget_all_of("relay/");
  }
}

}  // namespace
}  // namespace tendon::test
