// SPDX-License-Identifier: Apache-2.0
// Random operations against a model that is a queue. The pipe must behave like the queue.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <iostream>
#include <random>
#include <variant>

#include "support/batches.hpp"
#include "support/pipe_pair.hpp"

namespace tendon::test {
namespace {

using namespace std::chrono_literals;

std::uint64_t seed_of_this_run() {
  // TENDON_TEST_SEED repeats a run.
  const char* given = std::getenv("TENDON_TEST_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
}

struct RawMessage {
  std::uint32_t tag = 0;
  std::vector<std::byte> header;
  std::vector<std::byte> bytes;
};
using ModelMessage = std::variant<TensorDict, RawMessage>;

/// One direction of a pipe and its expected contents.
struct Direction {
  Pipe* from;
  Pipe* to;
  std::deque<ModelMessage> model;
  bool finished = false;
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
};

class RandomModel : public PipeTest {
 protected:
  std::mt19937_64 random_;
  std::vector<TensorDict> held_;
  std::vector<TensorDict> held_copies_;

  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  std::vector<std::byte> some_bytes(std::uint64_t size) {
    std::vector<std::byte> bytes(size);
    fill_pattern(bytes, random_());
    return bytes;
  }
  std::uint64_t some_size() {
    const std::uint64_t power = 1ull << below(17);
    return power - 1 + below(3);
  }
  TensorDict some_batch() {
    return below(4) == 0 ? patterned(random_(), some_size()) : random_batch(random_);
  }
  static TensorDict deep_copy(const TensorDict& batch) {
    TensorDict copy = TensorDict::allocate(batch.schema()).value();
    for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
      const Tensor dense = batch.leaf(i).contiguous().value();
      if (dense.size_bytes() != 0)
        std::memcpy(copy.leaf(i).mutable_bytes().data(), dense.data(), dense.size_bytes());
    }
    if (const auto& values = batch.values())
      for (const auto& [path, value] : values->as_map()) copy.set(path, value);
    return copy;
  }

  void send(Direction& way) {
    switch (below(4)) {
      case 0: {
        RawMessage raw{static_cast<std::uint32_t>(random_()), some_bytes(below(100)),
                       some_bytes(below(3) == 0 ? some_size() : below(50))};
        ASSERT_TRUE(
            succeeds(way.from->send(raw.bytes, {.tag = raw.tag, .header = raw.header}, kPatience)));
        way.model.emplace_back(std::move(raw));
        break;
      }
      case 1: {
        const TensorDict batch = some_batch();
        Loan loan = way.from->loan(batch.schema(), kPatience).value();
        for (std::size_t i = 0; i < batch.leaf_count(); ++i) {
          const Tensor dense = batch.leaf(i).contiguous().value();
          if (dense.size_bytes() != 0)
            std::memcpy(loan[batch.leaf_path(i)].mutable_bytes().data(), dense.data(),
                        dense.size_bytes());
        }
        if (const auto& values = batch.values())
          for (const auto& [path, value] : values->as_map()) loan.set(path, value);
        ASSERT_TRUE(succeeds(way.from->send(std::move(loan), kPatience)));
        EXPECT_TRUE(loan.empty());
        way.model.emplace_back(batch);
        break;
      }
      default: {
        const TensorDict batch = some_batch();
        ASSERT_TRUE(succeeds(way.from->send(batch, kPatience)));
        way.model.emplace_back(batch);
      }
    }
    ++way.sent;
  }

  void receive(Direction& way) {
    const auto patience =
        way.model.empty() && !way.finished ? Deadline::now() : Deadline(kPatience);
    if (way.model.empty()) {
      const auto expected = way.finished ? ErrorCode::end_of_stream : ErrorCode::timeout;
      ASSERT_TRUE(fails_with(way.to->recv(patience), expected));
      return;
    }
    const ModelMessage& next = way.model.front();
    if (const auto* raw = std::get_if<RawMessage>(&next)) {
      if (below(3) == 0) {
        ASSERT_TRUE(fails_with(way.to->recv(kPatience), ErrorCode::wrong_kind));
        return;  // it stays
      }
      auto message = way.to->recv_message(kPatience);
      ASSERT_TRUE(succeeds(message));
      ASSERT_FALSE(message->tensors.has_value());
      EXPECT_EQ(message->tag, raw->tag);
      EXPECT_TRUE(std::ranges::equal(message->header.bytes(), raw->header));
      EXPECT_TRUE(std::ranges::equal(message->bytes.bytes(), raw->bytes));
    } else {
      const TensorDict& batch = std::get<TensorDict>(next);
      std::optional<TensorDict> got;
      switch (below(4)) {
        case 0: {
          got = TensorDict::allocate(batch.schema()).value();
          ASSERT_TRUE(succeeds(way.to->recv_into(*got, kPatience)));
          break;
        }
        case 1: {
          auto message = way.to->recv_message(kPatience);
          ASSERT_TRUE(succeeds(message));
          ASSERT_TRUE(message->tensors.has_value());
          got = std::move(message->tensors);
          break;
        }
        case 2: {
          TensorDict other = patterned(1, 77);
          if (*other.schema() != *batch.schema()) {
            ASSERT_TRUE(
                fails_with(way.to->recv_into(other, kPatience), ErrorCode::schema_mismatch));
          }
          [[fallthrough]];
        }
        default: {
          auto received =
              way.to->recv(below(3) == 0 ? RecvMode::copy : RecvMode::view_or_copy, kPatience);
          ASSERT_TRUE(succeeds(received));
          got = *std::move(received);
        }
      }
      // recv_into leaves values of the destination alone where the message has none.
      ASSERT_TRUE(bitwise_equal(*got, batch)) << *got << "\n" << batch;
      if (below(4) == 0 && held_.size() < 40) {
        held_copies_.push_back(deep_copy(*got));
        held_.push_back(*std::move(got));
      }
    }
    way.model.pop_front();
    ++way.received;
  }
};
TENDON_ON_EVERY_WAY(RandomModel);

TEST_P(RandomModel, APipeIsTwoQueues) {
  const std::uint64_t seed = seed_of_this_run();
  RecordProperty("seed", std::to_string(seed));
  std::cout << "TENDON_TEST_SEED=" << seed << std::endl;
  random_.seed(seed);
  PipePair pair = connect();
  Direction ways[2] = {{&pair.client, &pair.server, {}}, {&pair.server, &pair.client, {}}};
  for (int step = 0; step < 2000; ++step) {
    Direction& way = ways[below(2)];
    // Keeps the number of unread messages small, so that one thread can never fill a window.
    if (below(2) == 0 && way.model.size() < 30 && !way.finished) {
      send(way);
    } else {
      receive(way);
    }
    ASSERT_FALSE(HasFatalFailure()) << "step " << step << ", seed " << seed;
    if (step == 1900) {
      ASSERT_TRUE(succeeds(ways[0].from->finish_sending(kPatience)));
      ways[0].finished = true;
    }
    if (below(20) == 0 && !held_.empty()) {
      const std::size_t which = below(held_.size());
      EXPECT_TRUE(bitwise_equal(held_[which], held_copies_[which])) << "changed while held";
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(which));
      held_copies_.erase(held_copies_.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (Direction& way : ways) {
    while (!way.model.empty()) {
      receive(way);
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    }
    EXPECT_EQ(way.from->stats().messages_sent, way.sent);
    EXPECT_EQ(way.to->stats().messages_received, way.received);
  }
  receive(ways[0]);
  for (std::size_t i = 0; i < held_.size(); ++i)
    EXPECT_TRUE(bitwise_equal(held_[i], held_copies_[i])) << "changed while held";
}

}  // namespace
}  // namespace tendon::test
