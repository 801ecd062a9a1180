// SPDX-License-Identifier: Apache-2.0
// How the members of a group agree on its next epoch, that is, on its remaining members.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <tendon/group/options.hpp>
#include <vector>

#include "group/membership/absences.hpp"
#include "group/membership/agreement_message.hpp"
#include "group/membership/proposer.hpp"

namespace tendon::v0::detail {

/// The agreement of one member, without sockets and clocks: messages and times are its input,
/// messages and views its output.
///
/// Single-decree Paxos for each epoch (L. Lamport, "Paxos Made Simple", 2001). The acceptors are
/// the members of the last epoch, the leader is the lowest one that is present, and a quorum is all
/// members that the leader takes to be present. Two quorums must meet, so these must be more than
/// half of the last epoch, or half of it with its lowest member, or all that are not proved dead.
/// The first round of the lowest place needs no `prepare`: no ballot can be lower.
///
///     following --lowest present, somebody absent or to be admitted--> preparing
///     preparing --all present promised--> proposing   (round 0 begins here)
///     proposing --all present accepted--> decided: the next epoch, following again
///     any --a later ballot heard of, or nothing heard for `retry`--> preparing, with a higher one
///     any --`decided` of a later epoch--> following, or evicted when it is without us
///     any --too few present--> no_quorum, until more is proved
///
/// A newcomer accepts a proposal that admits it, and is a member when it hears `decided`, which all
/// members repeat until it has answered. Before that it is no acceptor: it refuses words to the
/// process that had its place, and is admitted anew.
///
/// One limit: newcomers are no acceptors of the epoch that admits them. Suppose a network is cut,
/// one side admits a newcomer, and all other members of that side die and are proved dead to the
/// other side. Then both the newcomer and that side continue.
///
/// Threads: none; its owner has a lock.
/// Cost:    a few messages a member and epoch; nothing while nobody is missing.
class Agreement {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { following, preparing, proposing, no_quorum, evicted };
  struct Outgoing {
    GroupPlace to;
    AgreementMessage message;
  };

  /// Makes a member of `view`. With an `epoch` of 0 and no members it waits to be admitted.
  Agreement(GroupPlace self, const View& view, Minority minority, Clock::duration retry);

  /// Leaves `member` of this view out. In a later view this still holds for a member that stayed.
  /// The caller repeats it for a member that is new there, and for all members after views that it
  /// missed: another process may have taken the place.
  void set_absent(GroupPlace member, Absence how, Clock::time_point now);
  /// Admits a process to an empty place from the next epoch on; it answers by its own Agreement.
  void admit(GroupPlace place, Clock::time_point now);

  void receive(GroupPlace from, const AgreementMessage& message, Clock::time_point now);
  /// Repeats words that may have been lost. Call it every `retry` or so.
  void tick(Clock::time_point now);

  [[nodiscard]] const View& view() const noexcept { return view_; }
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] const MemberMask& absent() const noexcept { return absences_.absent(); }
  /// The places that were admit()ted here and are not in the view yet.
  [[nodiscard]] const MemberMask& admitted() const noexcept { return admitted_; }
  /// True if tick() has words to repeat.
  [[nodiscard]] bool unsettled() const noexcept {
    return state_ != State::evicted &&
           (absent().any() || leading() || accepted_ || unconfirmed_.any());
  }
  /// True while this member decides the next epoch.
  [[nodiscard]] bool leading() const noexcept {
    return state_ == State::preparing || state_ == State::proposing;
  }
  /// Whether the caller waits for a member that leads newcomers in.
  enum class Newcomers : std::uint8_t { wanted, not_wanted };
  /// Nothing is decided without a word of these members.
  [[nodiscard]] MemberMask awaited(Newcomers newcomers) const;
  /// Returns the messages to be sent; the list is empty afterwards.
  [[nodiscard]] std::vector<Outgoing> take_outgoing();

 private:
  using Kind = AgreementMessage::Kind;

  [[nodiscard]] MemberMask present() const { return view_.members & ~absent(); }
  [[nodiscard]] bool has_quorum(const MemberMask& side) const;
  void consider(Clock::time_point now);
  void lead(Clock::time_point now);
  void propose(Clock::time_point now);
  void adopt(const View& next);
  void begin_epoch(Clock::time_point now);
  void receive_here(GroupPlace from, const AgreementMessage& message, Clock::time_point now);
  void receive_as_newcomer(GroupPlace from, const AgreementMessage& message, Clock::time_point now);
  void count_answer(GroupPlace from, Clock::time_point now);
  void send(GroupPlace to, AgreementMessage message);
  void send_all(MemberMask to, const AgreementMessage& message);
  void send_report();
  [[nodiscard]] AgreementMessage message_of_report() const;
  [[nodiscard]] AgreementMessage message_of_ballot() const;
  [[nodiscard]] AgreementMessage message_of_view() const;

  const GroupPlace self_;
  const Minority minority_;
  const Clock::duration retry_;
  View view_;
  State state_ = State::following;
  Absences absences_;
  MemberMask admitted_;
  MemberMask unconfirmed_;  // new in this view, and silent in it so far

  std::uint64_t denied_ = 0;  // the last epoch of which this newcomer is no member

  // As an acceptor, for the epoch after view_.
  Ballot promised_;
  std::optional<AgreementMessage::Accepted> accepted_;

  // As a leader.
  Proposer proposer_;
  Clock::time_point said_at_;

  std::vector<Outgoing> outgoing_;
};

}  // namespace tendon::v0::detail
