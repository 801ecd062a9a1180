// SPDX-License-Identifier: Apache-2.0
// Fence::kill: the members that a call which waits for all others kills, and when.
#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <tendon/core/deadline.hpp>
#include <tendon/session/limits.hpp>
#include <vector>

namespace tendon::v0::detail {

/// How long a call that has killed continues after its deadline, so that the deaths are proved and
/// the remaining members agree. No call may outlive its deadline by more than 50 ms.
inline constexpr std::chrono::milliseconds kFenceGrace{40};

/// A member that a call waits for.
template <class Member>
struct AwaitedMember {
  Member member;
  /// Its link is suspect: no sign of life for kSuspectAfter, or over tcp for the lease if that is
  /// shorter. Only members of this host, over shared memory, can be killed.
  bool silent = false;
};

/// Chooses the members to kill: none before the deadline; from then on those that are silent, or
/// for which the call has waited during kSuspectAfter. An answer that is missing for less time may
/// be on its way: after a death all members have to answer anew.
///
/// `Member` names a process: another process in the same place is another Member.
///
/// Owns:    the times since which members are missing.
/// Threads: that of the call.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    one look at each awaited member.
template <class Member>
class FenceClock {
 public:
  using Clock = Deadline::Clock;

  explicit FenceClock(Deadline deadline) : deadline_(deadline) {}

  /// Returns the members to be killed now, each once. Call it at each look, with all awaited ones.
  [[nodiscard]] std::vector<Member> due(const std::vector<AwaitedMember<Member>>& awaited,
                                        Clock::time_point now) {
    std::vector<Member> due;
    std::map<Member, Clock::time_point> missed_since;
    for (const auto& [member, silent] : awaited) {
      const auto known = missed_since_.find(member);
      const auto since = known == missed_since_.end() ? now : known->second;
      missed_since.emplace(member, since);
      const bool hangs = silent || now - since >= kSuspectAfter;
      const bool is_new = std::count(named_.begin(), named_.end(), member) == 0;
      if (now < deadline_.time_point() || !hangs || !is_new) continue;
      due.push_back(member);
      named_.push_back(member);
    }
    missed_since_ = std::move(missed_since);
    return due;
  }

 private:
  const Deadline deadline_;
  std::map<Member, Clock::time_point> missed_since_;
  std::vector<Member> named_;  // by an earlier due()
};

}  // namespace tendon::v0::detail
