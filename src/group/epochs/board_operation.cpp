// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "core/failpoint.hpp"
#include "group/boards/rounds.hpp"
#include "group/epochs/operation.hpp"

namespace tendon::v0::detail {
namespace {

// Rounds in one call, at least as many as the others can have shown already. The number of an
// operation's rounds may depend on what a member says, and a lying one could always be ahead: the
// caller must be able to check its deadline.
constexpr int kMostRoundsAtOnce = 16;
static_assert(kMostRoundsAtOnce >= Board::kRounds);

class BoardOperation final : public Operation {
 public:
  BoardOperation(const Fingerprint& fingerprint, std::uint64_t sequence,
                 std::unique_ptr<Rounds> rounds, const Staging::Plan& plan, Staged staged)
      : Operation(fingerprint, sequence),
        rounds_(std::move(rounds)),
        plan_(plan),
        staged_(staged == Staged::first_round) {}

  Result<bool> advance(Epoch& epoch) override {
    Board& board = *epoch.board;
    for (int rounds = 0;; ++rounds) {
      if (rounds == kMostRoundsAtOnce && board.member_count() > 1) return false;
      const std::uint64_t round = epoch.board_round;
      if (!staged_) {
        if (board.holds_back(round) != board.self()) return false;
        if (i_ == 0) board.set_hint(plan_.hint);
        board.mine(round).fingerprint = fingerprint();
        timed([&] { rounds_->stage(i_, board, round); });
        if (TENDON_FAILPOINT("group.board.before_publish"))
          return Error{ErrorCode::internal, "group.board", "failpoint group.board.before_publish"};
        board.publish(round);
        ring_members(epoch);
        (void)TENDON_FAILPOINT("group.board.after_publish");
        staged_ = true;
      }
      for (; arrived_ < board.member_count(); ++arrived_) {
        if (arrived_ == board.self() || !rounds_->reads(i_, arrived_)) continue;
        if (!board.arrived(arrived_, round)) return false;
        // Copied once, so that the compared value is the reported one.
        const Fingerprint theirs = board.theirs(arrived_, round).fingerprint;
        if (theirs != fingerprint()) return mismatch(epoch, GroupRank{arrived_}, theirs);
      }
      Result<bool> taken = false;
      timed([&] { taken = rounds_->take(i_, board, round); });
      if (!taken) {
        if (const auto member = rounds_->misfit()) note_difference(GroupRank{*member});
        return taken;
      }
      if (!*taken) return taken;
      ++steps_;
      ++epoch.board_round;
      arrived_ = 0;
      staged_ = false;
      if (!rounds_->more(i_)) break;
      ++i_;
    }
    if (plan_.is_trial && plan_.pulls != rounds_->shows_tensors()) {
      board.staging().tried(fingerprint().op, fingerprint().size_bytes, plan_,
                            static_cast<std::uint64_t>(worked_.count()));
    }
    rounds_->finish();
    return true;
  }

  bool has_input(Epoch& epoch) override {
    Board& board = *epoch.board;
    const std::uint64_t round = epoch.board_round;
    if (!staged_) return board.holds_back(round) == board.self();
    return arrived_ >= board.member_count() || board.arrived(arrived_, round);
  }

  std::uint64_t steps_done() const noexcept override { return steps_; }

  void give_up(Epoch& epoch) override { epoch.board->give_up(epoch.board_round); }

  std::vector<GroupRank> waits_for(Epoch& epoch) override {
    Board& board = *epoch.board;
    const std::uint64_t round = epoch.board_round;
    std::vector<GroupRank> members;
    for (std::uint32_t m = 0; m < board.member_count(); ++m) {
      if (m == board.self()) continue;
      if (staged_ ? rounds_->reads(i_, m) && !board.arrived(m, round)
                  : round >= Board::kRounds && !board.arrived(m, round - Board::kRounds + 1))
        members.push_back(GroupRank{m});
    }
    return members;
  }

 private:
  template <class F>
  void timed(F work) {
    if (!plan_.is_trial) return work();
    const auto begin = std::chrono::steady_clock::now();
    work();
    worked_ += std::chrono::steady_clock::now() - begin;
  }

  const std::unique_ptr<Rounds> rounds_;
  const Staging::Plan plan_;
  std::chrono::nanoseconds worked_{0};  // in stages and takes
  std::uint64_t i_ = 0;
  std::uint64_t steps_ = 0;
  std::uint32_t arrived_ = 0;  // members of the board before it have arrived
  bool staged_;
};

}  // namespace

std::shared_ptr<Operation> make_board_operation(const Fingerprint& fingerprint,
                                                std::uint64_t sequence,
                                                std::unique_ptr<Rounds> rounds,
                                                const Staging::Plan& plan, Staged staged) {
  return std::make_shared<BoardOperation>(fingerprint, sequence, std::move(rounds), plan, staged);
}

}  // namespace tendon::v0::detail
