// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "group/membership/agreement_message.hpp"

namespace tendon::v0::detail {

/// Which group a join makes: a new one, or the one that was there before, if its rank 0 has gone
/// and members of it come to the process that takes that place.
///
/// Owns:    the id of the group.
/// Threads: none; its owner has a lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    nothing.
class FirstGroup {
 public:
  /// Rank 0 names the group that it makes if no process comes from one.
  void begin(std::uint64_t own) { id_ = own_ = own; }
  /// The others hear from rank 0 which it is.
  void learn(std::uint64_t id) { id_ = id; }
  /// 0: it is not known yet.
  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }

  /// May a member of `group`, 0: of none, join those that have come to rank 0?
  [[nodiscard]] bool admits(std::uint64_t group) const {
    return group == 0 || group == id_ || survivors_.none();
  }
  /// It has come, in the place of the one that came there before. With the last survivor their
  /// group is over.
  void come(std::uint32_t place, std::uint64_t group) {
    const bool was_survivor = survivors_[place];
    survivors_.set(place, group != 0);
    if (group != 0)
      id_ = group;
    else if (was_survivor && survivors_.none())
      id_ = own_;
  }
  /// Those that have come from the group that was there before.
  [[nodiscard]] const MemberMask& survivors() const noexcept { return survivors_; }

 private:
  std::uint64_t own_ = 0;
  std::uint64_t id_ = 0;
  MemberMask survivors_;
};

}  // namespace tendon::v0::detail
