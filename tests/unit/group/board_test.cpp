// SPDX-License-Identifier: Apache-2.0
// Boards of members that all run in this thread, so that the test chooses each schedule.
#include "group/boards/board.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "group/boards/rounds.hpp"
#include "group/epochs/operation.hpp"
#include "support/expect.hpp"

namespace tendon::detail {
namespace {

using testing::HasSubstr;

/// The members of a host in one epoch.
class Host {
 public:
  explicit Host(std::uint32_t members) {
    for (std::uint32_t m = 0; m < members; ++m) {
      Epoch& epoch = epochs_.emplace_back();
      epoch.self = {m};
      epoch.channels.resize(members);
      for (std::uint32_t other = 0; other < members; ++other) {
        epoch.places.push_back({other});
        epoch.names.push_back("rank " + std::to_string(other));
      }
      epoch.board = Board::create(7, 1, members, m).value();
    }
    for (std::uint32_t m = 0; m < members; ++m) {
      for (std::uint32_t other = 0; other < members; ++other) {
        if (other == m) continue;
        EXPECT_TRUE(board(m).attach(other, board(other).segment()));
      }
    }
  }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(epochs_.size()); }
  [[nodiscard]] Epoch& epoch(std::uint32_t member) { return epochs_[member]; }
  [[nodiscard]] Board& board(std::uint32_t member) { return *epochs_[member].board; }

 private:
  std::deque<Epoch> epochs_;
};

// The writer of round t+K must know about every reader that it is past round t.
TEST(Board, APlaceIsWrittenAgainOnlyWhenEveryOtherMemberIsARoundPastIt) {
  for (std::uint32_t slow = 0; slow < 3; ++slow) {
    for (std::uint32_t me = 0; me < 3; ++me) {
      if (me == slow) continue;
      Host host(3);
      for (std::uint64_t round = 1; round < 30; ++round) {
        // All other members are at this round; the slow one has read and published all rounds up to
        // round - K.
        const std::uint64_t shown = round < Board::kRounds ? 0 : round - Board::kRounds;
        if (shown != 0) host.board(slow).publish(shown);
        const bool uses_again = round > Board::kRounds;
        if (uses_again) {
          EXPECT_EQ(host.board(me).holds_back(round), slow) << "round " << round;
          host.board(slow).publish(shown + 1);
        } else if (round == Board::kRounds) {
          host.board(slow).publish(1);
        }
        EXPECT_EQ(host.board(me).holds_back(round), me) << "round " << round;
        for (std::uint32_t m = 0; m < 3; ++m)
          if (m != slow) host.board(m).publish(round);
      }
    }
  }
}

TEST(Board, ARoundHasArrivedWhenItOrALaterOneIsShown) {
  Host host(2);
  for (std::uint64_t round = 1; round < 3 * Board::kRounds; ++round) {
    EXPECT_FALSE(host.board(0).arrived(1, round));
    host.board(1).publish(round);
    EXPECT_FALSE(host.board(0).arrived(1, round + 1));
    EXPECT_FALSE(host.board(0).arrived(1, round + Board::kRounds));
    EXPECT_TRUE(host.board(0).arrived(1, round));
    EXPECT_FALSE(host.board(0).arrived(1, round + 1));
    for (std::uint64_t before = 1; before <= round; ++before)
      EXPECT_TRUE(host.board(0).arrived(1, before));
  }
}

Fingerprint numbered(std::uint32_t sequence) {
  return {.op = CollectiveOp::all_reduce, .sequence = sequence};
}

/// Rounds that call the test.
class ToldOfBoard final : public Rounds {
 public:
  std::uint64_t count = 1;
  std::function<void(std::uint64_t i, Board& board, std::uint64_t round)> on_stage = [](auto...) {};
  std::function<bool(std::uint64_t i, std::uint32_t member)> does_read = [](auto...) {
    return true;
  };
  std::function<bool(std::uint64_t i)> on_take = [](auto) { return true; };

  void stage(std::uint64_t i, Board& board, std::uint64_t round) override {
    on_stage(i, board, round);
  }
  bool reads(std::uint64_t i, std::uint32_t member) const override { return does_read(i, member); }
  Result<bool> take(std::uint64_t i, Board&, std::uint64_t) override { return on_take(i); }
  bool more(std::uint64_t i) const override { return i + 1 < count; }
};

TEST(BoardOperation, NothingIsSeenBeforeAllOfItIsWritten) {
  Host host(2);
  std::array<std::shared_ptr<Operation>, 2> operations;
  for (std::uint32_t m = 0; m < 2; ++m) {
    auto rounds = std::make_unique<ToldOfBoard>();
    rounds->count = 9;
    rounds->on_stage = [&, m](std::uint64_t, Board& board, std::uint64_t round) {
      EXPECT_FALSE(host.board(1 - m).arrived(m, round)) << "while it is written";
      EXPECT_TRUE(board.mine(round).fingerprint == numbered(3));
    };
    operations[m] = make_board_operation(numbered(3), 3, std::move(rounds));
  }
  bool done = false;
  for (int turn = 0; turn < 100 && !done; ++turn)
    done = operations[turn % 2]->advance(host.epoch(turn % 2)).value() &&
           operations[1 - turn % 2]->advance(host.epoch(1 - turn % 2)).value();
  EXPECT_TRUE(done);
}

TEST(BoardOperation, TakesWhenAllItReadsAreThereAndCountsEachRound) {
  Host host(3);
  auto rounds = std::make_unique<ToldOfBoard>();
  int taken = 0;
  rounds->count = 3;
  rounds->does_read = [](std::uint64_t i, std::uint32_t member) { return i != 1 || member == 2; };
  rounds->on_take = [&](std::uint64_t) { return ++taken != 3; };  // the third is not there at once
  const auto operation = make_board_operation(numbered(1), 1, std::move(rounds));
  Epoch& epoch = host.epoch(1);
  const auto show = [&](std::uint32_t member, std::uint64_t round) {
    host.board(member).mine(round).fingerprint = numbered(1);
    host.board(member).publish(round);
  };
  EXPECT_TRUE(operation->has_input(epoch));
  EXPECT_FALSE(operation->advance(epoch).value());
  EXPECT_EQ(operation->waits_for(epoch), (std::vector{GroupRank{0}, GroupRank{2}}));
  show(2, 1);
  EXPECT_FALSE(operation->has_input(epoch));  // the first member that it waits for has no line
  EXPECT_FALSE(operation->advance(epoch).value());
  EXPECT_EQ(operation->waits_for(epoch), (std::vector{GroupRank{0}}));
  EXPECT_EQ(operation->steps_done(), 0u);
  show(0, 1);
  EXPECT_TRUE(operation->has_input(epoch));
  EXPECT_FALSE(operation->advance(epoch).value());
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(operation->steps_done(), 1u);
  EXPECT_EQ(operation->waits_for(epoch), (std::vector{GroupRank{2}}));
  show(2, 2);
  EXPECT_FALSE(operation->advance(epoch).value());
  EXPECT_EQ(taken, 2);
  EXPECT_EQ(operation->steps_done(), 2u);
  for (const std::uint32_t member : {0u, 2u}) show(member, 3);
  EXPECT_FALSE(operation->advance(epoch).value());
  // All lines are there, but something is missing that no line shows: only another look can tell.
  EXPECT_TRUE(operation->waits_for(epoch).empty());
  EXPECT_TRUE(operation->has_input(epoch));
  EXPECT_EQ(operation->steps_done(), 2u);
  EXPECT_TRUE(operation->advance(epoch).value());
  EXPECT_EQ(operation->steps_done(), 3u);
  EXPECT_EQ(epoch.board_round, 4u);
}

// The root of a broadcast reads no line, but waits for the member that is furthest behind.
TEST(BoardOperation, WhoHoldsBackIsWaitedForAndWakes) {
  Host host(3);
  auto rounds = std::make_unique<ToldOfBoard>();
  rounds->count = Board::kRounds + 2;
  rounds->does_read = [](auto...) { return false; };
  const auto operation = make_board_operation(numbered(1), 1, std::move(rounds));
  Epoch& epoch = host.epoch(0);
  const auto advance_until_held = [&](std::uint64_t round) {
    EXPECT_FALSE(operation->advance(epoch).value());
    EXPECT_EQ(epoch.board_round, round);
    EXPECT_FALSE(operation->has_input(epoch));
  };
  for (const std::uint32_t member : {1u, 2u}) host.board(member).publish(1);
  advance_until_held(Board::kRounds + 1);
  EXPECT_EQ(operation->waits_for(epoch), (std::vector{GroupRank{1}, GroupRank{2}}));
  host.board(1).publish(2);
  advance_until_held(Board::kRounds + 1);
  EXPECT_EQ(operation->waits_for(epoch), (std::vector{GroupRank{2}}));
  host.board(2).publish(2);
  EXPECT_TRUE(operation->has_input(epoch));
  advance_until_held(Board::kRounds + 2);
  for (const std::uint32_t member : {1u, 2u}) host.board(member).publish(3);
  EXPECT_TRUE(operation->advance(epoch).value());
}

// The words of members decide how many rounds a gather has, and a lying member is always ahead. The
// caller must notice that its time is over.
TEST(BoardOperation, AMemberThatIsAlwaysAheadDoesNotKeepTheCaller) {
  Host host(2);
  const Fingerprint gather{.op = CollectiveOp::gather, .root = 1, .sequence = 1};
  const std::uint64_t invented_bytes = std::uint64_t{1} << 62;
  for (std::uint64_t round = 1; round <= Board::kRounds; ++round) {
    Board::Line& line = host.board(1).mine(round);
    line.fingerprint = gather;
    std::memcpy(line.small.data(), &invented_bytes, sizeof invented_bytes);
    line.round = ~std::uint64_t{0};
  }
  const Tensor given = Tensor::zeros(DType::u8, Shape({1})).value();
  const auto operation = make_board_operation(
      gather, 1,
      gather_rounds(Flat::make(given, Use::read, Hold::borrow, "test").value(), {}, 1, 0));
  for (int times = 0; times < 3; ++times) {
    EXPECT_FALSE(operation->advance(host.epoch(0)).value());
    EXPECT_TRUE(operation->has_input(host.epoch(0)));
  }
}

// The owner of a pool may unmap it, or show another pool by the same name, at any time.
TEST(BoardOperation, WhatIsReadInAnothersPoolStaysThere) {
  Host host(2);
  const PoolPlace place{.segment_id = 1, .offset = 0};
  Board::Line& line = host.board(1).mine(1);
  line.fingerprint = numbered(1);
  std::memcpy(line.small.data(), &place, sizeof place);
  host.board(1).publish(1);
  const Tensor mine = Tensor::zeros(DType::i32, Shape({1000})).value();
  auto theirs = std::make_shared<Tensor>(Tensor::zeros(DType::i32, Shape({1000})).value());
  const std::weak_ptr<Tensor> held = theirs;
  const auto read_pool = [&](auto...) {
    const std::byte* const at = theirs->data();
    return std::shared_ptr<const std::byte>(std::move(theirs), at);
  };
  auto operation = make_board_operation(
      numbered(1), 1,
      all_reduce_rounds(Flat::make(mine, Use::write, Hold::borrow, "test").value(), ReduceOp::sum,
                        2, BoardAllReduce::pull, place, read_pool));
  EXPECT_FALSE(operation->advance(host.epoch(0)).value());
  EXPECT_EQ(operation->steps_done(), 1u);
  EXPECT_FALSE(held.expired());
  operation.reset();
  EXPECT_TRUE(held.expired());
}

TEST(BoardOperation, AnotherOperationIsSeenInWhicheverRoundItBegins) {
  for (std::uint64_t differs = 0; differs < 3; ++differs) {
    Host host(2);
    auto rounds = std::make_unique<ToldOfBoard>();
    rounds->count = 3;
    const auto operation = make_board_operation(numbered(1), 1, std::move(rounds));
    for (std::uint64_t i = 0; i <= differs; ++i) {
      host.board(1).mine(i + 1).fingerprint = numbered(i == differs ? 2 : 1);
      host.board(1).publish(i + 1);
    }
    const auto advanced = operation->advance(host.epoch(0));
    ASSERT_FALSE(advanced) << "round " << differs;
    EXPECT_EQ(advanced.error().code, ErrorCode::mismatch);
    EXPECT_THAT(advanced.error().detail, HasSubstr("rank 1 called all_reduce #2"));
  }
}

// Programs of members that are advanced in a random order. A member that has completed an operation
// overwrites its tensor at once, which it may do.
using Elements = std::vector<std::int32_t>;

struct Planned {
  enum class Kind : std::uint8_t { all_reduce, reduce, broadcast };
  Kind kind;
  BoardAllReduce way;
  std::size_t count;
  std::uint32_t root;
  std::vector<bool> pooled;  // by member
};

std::int32_t element(std::size_t operation, std::uint32_t member, std::size_t i) {
  return static_cast<std::int32_t>((i * 7 + operation * 5 + member * 11) % 1009);
}

class Programs {
 public:
  Programs(std::uint32_t members, std::vector<Planned> plan, std::uint32_t seed)
      : host_(members), plan_(std::move(plan)), random_(seed), members_(members) {
    for (std::uint32_t m = 0; m < members; ++m) begin(m);
  }

  // In a turn a member advances as far as it can without another; `weights` say how often each has
  // a turn.
  void run(const std::vector<double>& weights) {
    std::discrete_distribution<std::uint32_t> whose(weights.begin(), weights.end());
    std::size_t idle = 0;
    while (!testing::Test::HasFailure()) {
      const bool all_done = std::all_of(members_.begin(), members_.end(),
                                        [&](const Member& m) { return m.at == plan_.size(); });
      if (all_done) return;
      ASSERT_LT(++idle, 100'000u) << "nobody comes any further";
      const std::uint32_t m = whose(random_);
      if (members_[m].at == plan_.size()) continue;
      const std::uint64_t round = host_.epoch(m).board_round;
      const auto advanced = members_[m].operation->advance(host_.epoch(m));
      ASSERT_TRUE(advanced) << advanced.error().message();
      if (host_.epoch(m).board_round != round) idle = 0;
      if (!*advanced) continue;
      check(m);
      for (std::int32_t& each : tensor(m, members_[m].at).span<std::int32_t>()) each = -1;
      ++members_[m].at;
      begin(m);
    }
  }

 private:
  struct Member {
    std::size_t at = 0;
    std::shared_ptr<Operation> operation;
    std::vector<Tensor> tensors;  // one for each operation that has begun
  };

  const Tensor& tensor(std::uint32_t member, std::size_t operation) const {
    return members_[member].tensors[operation];
  }

  void begin(std::uint32_t m) {
    Member& member = members_[m];
    if (member.at == plan_.size()) return;
    const Planned& planned = plan_[member.at];
    const auto count = static_cast<std::int64_t>(planned.count);
    const Tensor& made =
        member.tensors.emplace_back(Tensor::empty(DType::i32, Shape({count})).value());
    const auto elements = made.span<std::int32_t>();
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = element(member.at, m, i);
    Flat flat = Flat::make(made, Use::write, Hold::borrow, "test").value();
    std::unique_ptr<Rounds> rounds;
    switch (planned.kind) {
      case Planned::Kind::all_reduce: {
        PoolPlace place;
        if (planned.pooled[m])
          place = {.segment_id = static_cast<std::uint32_t>(member.at) + 1, .offset = m};
        rounds = all_reduce_rounds(std::move(flat), ReduceOp::sum, host_.size(), planned.way, place,
                                   [this](auto... what) { return read_pool(what...); });
        break;
      }
      case Planned::Kind::reduce:
        rounds = reduce_rounds(std::move(flat), ReduceOp::sum, planned.root, m);
        break;
      case Planned::Kind::broadcast:
        rounds = broadcast_rounds(std::move(flat), planned.root, m);
        break;
    }
    const auto sequence = static_cast<std::uint32_t>(member.at) + 1;
    member.operation = make_board_operation(numbered(sequence), sequence, std::move(rounds));
  }

  // The segment is sometimes still on its way.
  std::shared_ptr<const std::byte> read_pool(std::uint32_t member, PoolPlace place,
                                             std::uint64_t size_bytes) {
    EXPECT_EQ(place.offset, member);
    if (random_() % 3 == 0) return nullptr;
    const Tensor& from = tensor(member, place.segment_id - 1);
    EXPECT_EQ(from.size_bytes(), size_bytes);
    return {std::make_shared<const Tensor>(from), from.data()};
  }

  void check(std::uint32_t m) const {
    const std::size_t at = members_[m].at;
    const Planned& planned = plan_[at];
    const auto elements = tensor(m, at).span<const std::int32_t>();
    for (std::size_t i = 0; i < elements.size(); ++i) {
      std::int32_t wanted = 0;
      if (planned.kind == Planned::Kind::broadcast) {
        wanted = element(at, planned.root, i);
      } else if (planned.kind == Planned::Kind::reduce && planned.root != m) {
        wanted = element(at, m, i);
      } else {
        for (std::uint32_t other = 0; other < host_.size(); ++other)
          wanted += element(at, other, i);
      }
      ASSERT_EQ(elements[i], wanted) << "element " << i << " of " << elements.size()
                                     << " in operation " << at << " of rank " << m;
    }
  }

  Host host_;
  const std::vector<Planned> plan_;
  std::mt19937 random_;
  std::vector<Member> members_;
};

Planned random_plan(std::mt19937& random, std::uint32_t members) {
  // Counts around the limits of lines and slots.
  static constexpr std::array<std::size_t, 8> kCounts = {0,      1,      24,      25,
                                                         65'536, 65'537, 150'000, 300'001};
  constexpr std::array kWays = {BoardAllReduce::symmetric, BoardAllReduce::distributed,
                                BoardAllReduce::pull, BoardAllReduce::pull};
  Planned planned{.kind = static_cast<Planned::Kind>(random() % 3),
                  .way = kWays[random() % kWays.size()],
                  .count = kCounts[random() % kCounts.size()],
                  .root = static_cast<std::uint32_t>(random() % members),
                  .pooled = {}};
  // A tensor that fits in a line is never pulled: the place of its memory would overlap it.
  if (planned.count * sizeof(std::int32_t) <= Board::kSmallBytes &&
      planned.way == BoardAllReduce::pull)
    planned.way = BoardAllReduce::symmetric;
  const auto mixed = random() % 4;
  for (std::uint32_t m = 0; m < members; ++m)
    planned.pooled.push_back(mixed != 0 || random() % 2 == 0);
  return planned;
}

class BoardPrograms : public testing::TestWithParam<std::uint32_t> {};

TEST_P(BoardPrograms, AreRightInWhicheverOrderMembersCome) {
  const std::uint32_t members = GetParam();
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int again = 0; again < 12 && !HasFailure(); ++again) {
    std::vector<Planned> plan;
    for (int i = 0; i < 12; ++i) plan.push_back(random_plan(random, members));
    std::vector<double> weights;
    for (std::uint32_t m = 0; m < members; ++m) weights.push_back(random() % 3 == 0 ? 0.05 : 1);
    Programs(members, plan, random()).run(weights);
  }
}

TEST_P(BoardPrograms, PullsOfSeveralChunksLeaveNobodyWithARuinedTensor) {
  const std::uint32_t members = GetParam();
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr std::size_t kChunk = (1 << 20) / sizeof(std::int32_t);  // of each member
  for (std::uint32_t slow = 0; slow < members && !HasFailure(); ++slow) {
    std::vector<Planned> plan;
    for (const std::size_t count : {kChunk * members - 1, kChunk * members + 1,
                                    kChunk * members * 2, kChunk * members * 2 + 100}) {
      plan.push_back({.kind = Planned::Kind::all_reduce,
                      .way = BoardAllReduce::pull,
                      .count = count,
                      .root = 0,
                      .pooled = std::vector<bool>(members, true)});
    }
    std::vector<double> weights(members, 1);
    weights[slow] = 0.02;
    Programs(members, plan, random()).run(weights);
  }
}

INSTANTIATE_TEST_SUITE_P(Members, BoardPrograms, testing::Values(2, 3, 4));

}  // namespace
}  // namespace tendon::detail
