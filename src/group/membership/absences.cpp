// SPDX-License-Identifier: Apache-2.0
#include "group/membership/absences.hpp"

namespace tendon::v0::detail {

Absences::Absences(GroupPlace self, const MemberMask& members)
    : self_(self), members_(members), reports_{{self, {}}} {}

bool Absences::miss(GroupPlace member, Absence how) {
  AbsenceReport& mine = reports_[self_];
  const AbsenceReport before = mine;
  mine.absent.set(member.value);
  if (how == Absence::proved) mine.proved.set(member.value);
  if (mine == before) return false;
  weigh();
  return true;
}

void Absences::hear(GroupPlace from, const AbsenceReport& report) {
  reports_[from] = {report.absent & members_, report.proved & members_};
  weigh();
}

void Absences::begin(const MemberMask& members, const MemberMask& stay) {
  members_ = members;
  reports_ = {{self_, {mine().absent & stay, mine().proved & stay}}};
  weigh();
}

void Absences::weigh() {
  proved_.reset();
  for (const auto& [place, report] : reports_) proved_ |= report.proved;
  // The reports of a member that this one misses do not count: its last word may be old.
  absent_ = proved_ | mine().absent;
  for (const auto& [place, report] : reports_) {  // by rising place
    if (absent_.test(place.value)) continue;
    MemberMask others = report.absent;
    absent_ |= others.reset(place.value);
  }
  absent_ &= members_;
}

}  // namespace tendon::v0::detail
