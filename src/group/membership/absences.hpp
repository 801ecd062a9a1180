// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include "group/membership/agreement_message.hpp"

namespace tendon::v0::detail {

/// The members that one member reports as missing.
struct AbsenceReport {
  MemberMask absent;
  MemberMask proved;  ///< those of them that are dead
  friend bool operator==(const AbsenceReport&, const AbsenceReport&) = default;
};

/// The members that are absent from an epoch, by the reports of all: those that this member misses,
/// then those that a present member reports, in the order of places. If two cannot reach each
/// other, but both reach a third, the lower one stays, once both have reported. Dead members are
/// absent whichever member says so.
///
/// Owns:    the last report of each member.
/// Threads: none; its owner has a lock.
/// Errors:  none; reports about others than the members do not count.
/// Blocks:  never.
/// Cost:    a look at all reports for each that changes.
class Absences {
 public:
  Absences(GroupPlace self, const MemberMask& members);

  /// Notes that this member misses another. False: it has said so before.
  bool miss(GroupPlace member, Absence how);
  /// Notes all that `from` misses.
  void hear(GroupPlace from, const AbsenceReport& report);
  /// Begins the next epoch. Other members repeat their reports in it if they still hold; this
  /// member's hold for the members that `stay`.
  void begin(const MemberMask& members, const MemberMask& stay);

  [[nodiscard]] const MemberMask& absent() const noexcept { return absent_; }
  [[nodiscard]] const MemberMask& proved() const noexcept { return proved_; }
  /// The report of this member.
  [[nodiscard]] const AbsenceReport& mine() const { return reports_.at(self_); }

 private:
  void weigh();

  const GroupPlace self_;
  MemberMask members_;
  std::map<GroupPlace, AbsenceReport> reports_;  // ours too
  MemberMask absent_;                            // the result
  MemberMask proved_;
};

}  // namespace tendon::v0::detail
