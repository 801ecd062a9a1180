// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "group/membership/agreement_message.hpp"

namespace tendon::v0::detail {

/// One member's attempts to decide the next epoch, as the proposer of Paxos: the ballot that it
/// tries, what it must propose, and the missing answers.
///
/// Owns:    the ballot that is tried, and the words of others.
/// Threads: none; its owner has a lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a few masks.
class Proposer {
 public:
  explicit Proposer(GroupPlace self) : self_(self) {}

  /// Begins the next attempt, with a ballot above all that were tried or heard of. Round 0 belongs
  /// to the `lowest` place of all; no ballot can be lower, so it proposes without a promise.
  /// `accepted`: by this member, before.
  const Ballot& begin(GroupPlace lowest,
                      const std::optional<AgreementMessage::Accepted>& accepted) {
    ballot_ = {std::max<std::uint64_t>(next_round_, lowest == self_ ? 0 : 1), self_};
    next_round_ = ballot_.round + 1;
    outvoted_ = false;
    heard_ = accepted;
    return ballot_;
  }
  /// Notes another member's ballot.
  void heed(const Ballot& ballot) { next_round_ = std::max(next_round_, ballot.round + 1); }
  /// Notes what a promising member had accepted before; the latest counts.
  void hear(const std::optional<AgreementMessage::Accepted>& accepted) {
    if (accepted && (!heard_ || accepted->ballot > heard_->ballot)) heard_ = accepted;
  }
  /// Proposes `wanted`, unless something may have been decided already: that must be decided again.
  const MemberMask& propose(const MemberMask& wanted) {
    proposal_ = heard_ ? heard_->mask : wanted;
    return proposal_;
  }
  /// Expects an answer of each of these.
  void ask(const MemberMask& whom) {
    asked_ = whom;
    unanswered_ = whom;
  }
  void answer(GroupPlace from) { unanswered_.reset(from.value); }
  /// Notes that a member follows this ballot.
  void refused(const Ballot& followed) { outvoted_ = outvoted_ || followed > ballot_; }

  [[nodiscard]] const Ballot& ballot() const noexcept { return ballot_; }
  [[nodiscard]] const MemberMask& proposal() const noexcept { return proposal_; }
  [[nodiscard]] const MemberMask& asked() const noexcept { return asked_; }
  [[nodiscard]] const MemberMask& unanswered() const noexcept { return unanswered_; }
  /// True if only a later ballot can be decided.
  [[nodiscard]] bool outvoted() const noexcept { return outvoted_; }

 private:
  GroupPlace self_;
  std::uint64_t next_round_ = 0;  // a ballot is used for one proposal
  Ballot ballot_;
  std::optional<AgreementMessage::Accepted> heard_;
  MemberMask proposal_;
  MemberMask asked_;
  MemberMask unanswered_;
  bool outvoted_ = false;
};

}  // namespace tendon::v0::detail
