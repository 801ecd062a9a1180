// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "group/membership/group_place.hpp"
#include "group/membership/member_channel.hpp"

namespace tendon::v0::detail {

/// A member's word that an epoch has ended, and why.
struct AbortWord {
  Envelope envelope;
  std::string text;
};

/// Words about epochs that this member has not entered yet. A member that waits for no other one,
/// the root of broadcasts, may be far ahead. An honest one speaks of two or three epochs.
///
/// Owns:    the words and the steps.
/// Threads: none; its owner has a lock.
/// Errors:  a step that does not fit ends its epoch, by a word of this member.
/// Blocks:  never.
/// Cost:    a look-up by epoch.
class EarlyWords {
 public:
  struct Step {
    GroupPlace place;  ///< of the sender
    InboundMessage inbound;
  };
  struct OfEpoch {
    std::optional<AbortWord> abort;
    std::vector<Step> steps;
  };

  /// `self`: this member's place.
  explicit EarlyWords(GroupPlace self) : self_(self) {}

  /// Keeps the word; of several for one epoch, the one with the smallest number. False: too many
  /// epochs.
  [[nodiscard]] bool keep(AbortWord word);
  /// Keeps a step likewise. The caller has the receive lock of the link on which it arrived.
  [[nodiscard]] bool keep(GroupPlace place, InboundMessage&& inbound);
  /// Returns the words of this epoch, which begins, and forgets those of earlier ones.
  [[nodiscard]] OfEpoch take(std::uint64_t number);

  /// The bytes of all steps that are here, or were here when the last epoch began.
  [[nodiscard]] std::uint64_t size_bytes() const noexcept { return size_bytes_; }

  static constexpr std::uint64_t kMostEarlyStepBytes = std::uint64_t{256} << 20;
  static constexpr std::uint64_t kStepCostBytes = 1024;  ///< beside its payload
  static constexpr std::size_t kMostEarlyEpochs = 64;

 private:
  [[nodiscard]] static std::uint64_t cost_of(const InboundMessage& step) {
    return step.size_bytes + kStepCostBytes;
  }
  const GroupPlace self_;
  std::map<std::uint64_t, AbortWord> aborts_;
  std::map<std::uint64_t, std::vector<Step>> steps_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace tendon::v0::detail
