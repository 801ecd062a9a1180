// SPDX-License-Identifier: Apache-2.0
// How the members of a group agree on its next epoch: who is still in it.
#pragma once

#include <bitset>
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <tendon/core/rank.hpp>
#include <tendon/group/options.hpp>
#include <vector>

namespace tendon::v0::detail {

/// Places of a group are fixed when it is made; a member is a place that is taken.
inline constexpr std::size_t kMaxPlaces = 256;
using MemberMask = std::bitset<kMaxPlaces>;

/// A group at one moment. Epochs count up; nothing of one is applied in another.
struct View {
  std::uint64_t epoch = 0;
  MemberMask members;
  friend bool operator==(const View&, const View&) = default;
};

/// Why somebody is left out of the next epoch.
enum class Absence : std::uint8_t {
  proved,   ///< the kernel says that the process is gone
  assumed,  ///< its lease has lapsed: it may live, and think the same of us
};

/// An attempt to decide an epoch; a later one has the higher ballot.
struct Ballot {
  std::uint64_t round = 0;
  std::uint32_t place = 0;  ///< of the member that leads it
  friend auto operator<=>(const Ballot&, const Ballot&) = default;
};

/// What members say to each other to agree. `epoch` is that of the sender's view, for all kinds.
struct AgreementMessage {
  enum class Kind : std::uint8_t {
    absent,   ///< all that the sender takes to be absent: `mask`, of which `proved` are dead
    prepare,  ///< follow `ballot` and none before, and say what you accepted so far
    promise,  ///< `accepted`, when there is one, is what the sender accepted before
    propose,  ///< `mask` are to be the members of the next epoch
    accept,   ///< of the proposal of `ballot`
    refuse,   ///< a later ballot, this one, is followed; or, with a `mask` of the sender: it is no
              ///< member of `epoch`, that was the process before it
    decided,  ///< the sender is in `epoch`, with the members `mask`
  };
  struct Accepted {
    Ballot ballot;
    MemberMask mask;
    friend bool operator==(const Accepted&, const Accepted&) = default;
  };
  Kind kind = Kind::absent;
  std::uint64_t epoch = 0;
  Ballot ballot;
  MemberMask mask;
  MemberMask proved;    ///< of a report
  MemberMask admitted;  ///< of a proposal: those in `mask` who are no members yet
  std::optional<Accepted> accepted;
};

/// The agreement of one member, without sockets and clocks: messages and times come in, messages
/// and views come out.
///
/// Single-decree Paxos for each epoch (L. Lamport, "Paxos Made Simple", 2001): the acceptors are
/// the members of the last epoch, the leader is the lowest one that is present, and a quorum is
/// everybody whom the leader takes to be present. Two quorums must meet, so those present must be
/// more than half of the last epoch, or half of it with its lowest member, or all that are not
/// proved dead. The first round of the lowest place needs no `prepare`: nobody can have been before
/// it.
///
///     following --lowest present, somebody absent or to be admitted--> preparing
///     preparing --all present promised--> proposing   (round 0 begins here)
///     proposing --all present accepted--> decided: the next epoch, following again
///     any --a later ballot heard of, or nothing heard for `retry`--> preparing, with a higher one
///     any --`decided` of a later epoch--> following, or evicted when it is without us
///     any --too few present--> no_quorum, until more is proved
///
/// A newcomer accepts a proposal that admits it, and is a member when it hears `decided`, which all
/// members say until it has answered. Before that it is no acceptor: what is said to the process
/// that had its place it refuses, and is admitted anew.
///
/// Who is absent: whom this member misses, then whom a present member reports, taking the lower
/// place's word first. So of two that cannot reach each other, but both reach a third, the lower
/// one stays, once both have said so. The dead are absent whoever says so.
///
/// One limit: newcomers are no acceptors of the epoch that admits them. If a network is cut, one
/// side admits somebody, and all other members of that side then die and are proved dead to the
/// other side, both the newcomer and that side go on.
///
/// Threads: none; its owner has a lock.
/// Cost:    a few messages a member and epoch; nothing while nobody is missing.
class Agreement {
 public:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { following, preparing, proposing, no_quorum, evicted };
  struct Outgoing {
    GroupRank to;
    AgreementMessage message;
  };

  /// A member of `view`; an `epoch` of 0 with no members is one who waits to be admitted.
  Agreement(GroupRank self, const View& view, Minority minority, Clock::duration retry);

  /// `member` of this view is to be left out. It holds for those who stay; of who is new in a later
  /// view, as of all after views that were not heard of, it has to be said again: a place may have
  /// been taken by another process.
  void set_absent(GroupRank member, Absence how, Clock::time_point now);
  /// An empty place is taken from the next epoch on; it answers by an Agreement of its own.
  void admit(GroupRank place, Clock::time_point now);

  void receive(GroupRank from, const AgreementMessage& message, Clock::time_point now);
  /// Says again what may have been lost. Call it every `retry` or so.
  void tick(Clock::time_point now);

  [[nodiscard]] const View& view() const noexcept { return view_; }
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] const MemberMask& absent() const noexcept { return absent_; }
  /// Those who were admit()ted here and are not members yet.
  [[nodiscard]] const MemberMask& admitted() const noexcept { return admitted_; }
  /// tick() has something to say again.
  [[nodiscard]] bool unsettled() const noexcept {
    return state_ != State::evicted &&
           (absent_.any() || leading() || accepted_ || unconfirmed_.any());
  }
  /// This member is deciding the next epoch.
  [[nodiscard]] bool leading() const noexcept {
    return state_ == State::preparing || state_ == State::proposing;
  }
  /// Without a word of these nothing is decided. `admitting`: newcomers wait to be led in, too.
  [[nodiscard]] MemberMask awaited(bool admitting) const;
  /// What is to be sent; empty afterwards.
  [[nodiscard]] std::vector<Outgoing> take_outgoing();

 private:
  using Kind = AgreementMessage::Kind;

  [[nodiscard]] MemberMask present() const { return view_.members & ~absent_; }
  [[nodiscard]] bool has_quorum(const MemberMask& side) const;
  void weigh_reports();
  void consider(Clock::time_point now);
  void lead(Clock::time_point now);
  void propose(Clock::time_point now);
  void adopt(const View& next);
  void begin_epoch(Clock::time_point now);
  void receive_here(GroupRank from, const AgreementMessage& message, Clock::time_point now);
  void receive_as_newcomer(GroupRank from, const AgreementMessage& message, Clock::time_point now);
  void count_answer(GroupRank from, Clock::time_point now);
  void send(GroupRank to, AgreementMessage message);
  void send_all(MemberMask to, const AgreementMessage& message);
  void send_report();
  [[nodiscard]] AgreementMessage message_of_report() const;
  [[nodiscard]] AgreementMessage message_of_ballot() const;
  [[nodiscard]] AgreementMessage message_of_view() const;

  const GroupRank self_;
  const Minority minority_;
  const Clock::duration retry_;
  View view_;
  State state_ = State::following;
  struct Report {
    MemberMask absent;
    MemberMask proved;
    friend bool operator==(const Report&, const Report&) = default;
  };
  std::map<std::uint32_t, Report> reports_;  // by place; ours too
  MemberMask absent_;                        // what they come to
  MemberMask proved_;
  MemberMask admitted_;
  MemberMask unconfirmed_;  // new in this view, and have not said anything in it

  std::uint64_t denied_ = 0;  // the last epoch of which this newcomer is no member

  // As an acceptor, for the epoch after view_.
  Ballot promised_;
  std::optional<AgreementMessage::Accepted> accepted_;

  // As a leader.
  Ballot ballot_;
  MemberMask asked_;  // of whom an answer is wanted
  MemberMask answered_;
  std::optional<AgreementMessage::Accepted> heard_;  // the latest that somebody accepted before
  MemberMask proposal_;
  bool outvoted_ = false;         // somebody follows a later ballot than ours
  std::uint64_t next_round_ = 0;  // a ballot is used for one proposal
  Clock::time_point said_at_;

  std::vector<Outgoing> outgoing_;
};

}  // namespace tendon::v0::detail
