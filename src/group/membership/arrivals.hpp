// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "group/membership/agreement_message.hpp"

namespace tendon::v0::detail {

/// The members that have arrived while one joins, and those that are missing. All must arrive, by
/// themselves or as an answer to this member, which connected to them. A late member, in the place
/// of another one, was told which members are there and connects to them: it waits only for their
/// answers.
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
  /// Notes that this member has connected to it and waits for its answer.
  void dial(std::uint32_t place);
  /// Notes the answer of a dialled member; others have not been asked.
  void answer(std::uint32_t place);
  /// Notes a member that arrived by itself, whichever process was dialled there before.
  void come(std::uint32_t place);

  /// True if this member has connected to it, and no process has arrived there since.
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
