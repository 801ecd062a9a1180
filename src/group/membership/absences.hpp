// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>

#include "group/membership/agreement_message.hpp"

namespace tendon::v0::detail {

/// Which members one member says it misses.
struct AbsenceReport {
  MemberMask absent;
  MemberMask proved;  ///< those of them that are dead
  friend bool operator==(const AbsenceReport&, const AbsenceReport&) = default;
};

/// Which members are absent from an epoch, by the reports of all: those that this member misses,
/// then those that a present member reports, taking the lower place's word first. So of two that
/// cannot reach each other, but both reach a third, the lower one stays, once both have said so.
/// The dead are absent whichever member says so.
///
/// Owns:    the last report of each member.
/// Threads: none; its owner has a lock.
/// Errors:  none; what is said of others than the members does not count.
/// Blocks:  never.
/// Cost:    a look at all reports for each that changes.
class Absences {
 public:
  Absences(GroupPlace self, const MemberMask& members);

  /// This member misses it. False: it has said so before.
  bool miss(GroupPlace member, Absence how);
  /// `from` says all that it misses.
  void hear(GroupPlace from, const AbsenceReport& report);
  /// The next epoch. What others saw in the last one they say again in this one, if it still holds;
  /// what this member saw holds of the members that `stay`.
  void begin(const MemberMask& members, const MemberMask& stay);

  [[nodiscard]] const MemberMask& absent() const noexcept { return absent_; }
  [[nodiscard]] const MemberMask& proved() const noexcept { return proved_; }
  /// What this member reports.
  [[nodiscard]] const AbsenceReport& mine() const { return reports_.at(self_); }

 private:
  void weigh();

  const GroupPlace self_;
  MemberMask members_;
  std::map<GroupPlace, AbsenceReport> reports_;  // ours too
  MemberMask absent_;                            // what they come to
  MemberMask proved_;
};

}  // namespace tendon::v0::detail
