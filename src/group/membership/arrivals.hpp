// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "group/membership/agreement_message.hpp"

namespace tendon::v0::detail {

/// Which members have come while one joins, and which are still to come: all, each by itself or as
/// an answer to this member, which connected to it. A member that comes late, in the place of
/// another one, was told which are there and connects to them: their answers are all that it waits
/// for.
///
/// Owns:    masks of places.
/// Threads: none; its owner has a lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    a few masks.
class Arrivals {
 public:
  Arrivals(std::uint32_t self, std::uint32_t size);

  void come_late() { late_ = true; }
  [[nodiscard]] bool late() const noexcept { return late_; }
  /// This member has connected to it, and it is to answer.
  void dial(std::uint32_t place);
  /// If it was dialled: others have not been asked.
  void answer(std::uint32_t place);
  /// It has come by itself, whichever process was dialled there before.
  void come(std::uint32_t place);

  /// This member has connected to it, and nobody has come there since.
  [[nodiscard]] bool dialled(std::uint32_t place) const { return dialled_[place]; }
  [[nodiscard]] bool complete() const { return missing().none(); }
  /// "rank 1, 2 of 4".
  [[nodiscard]] std::string missing_ranks() const;

 private:
  [[nodiscard]] MemberMask missing() const { return (late_ ? dialled_ : others_) & ~known_; }

  const std::uint32_t size_;
  MemberMask others_;
  MemberMask dialled_;
  MemberMask known_;
  bool late_ = false;
};

}  // namespace tendon::v0::detail
