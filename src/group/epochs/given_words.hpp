// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/text.hpp"
#include "group/membership/group_place.hpp"
#include "group/operands/flat.hpp"

namespace tendon::v0::detail {

/// The members' own shapes for an operation that two of them called differently. Steps carry only
/// sizes and hashes, so each member has to tell its shapes in words.
///
/// Owns:    one text a member, of at most kMostBytes.
/// Threads: none; its owner has a lock.
/// Errors:  none: a peer's text is cleaned and cut.
/// Blocks:  never.
/// Cost:    nothing before a mismatch.
class GivenWords {
 public:
  static constexpr std::size_t kMostBytes = 2048;
  /// The op of an abort that carries such a word: it ends nothing. A peer that does not know it
  /// takes it for one more abort of an epoch that has ended, which does nothing either.
  static constexpr std::uint8_t kWord = 1;
  static_assert(FlatSummary::kMostTextBytes + 256 < kMostBytes);

  /// The next epoch begins.
  void clear() {
    said_ = false;
    texts_.clear();
  }
  /// True the first time.
  [[nodiscard]] bool say_once() { return !std::exchange(said_, true); }
  void hear(GroupPlace place, std::string_view text) {
    texts_.try_emplace(place.value, cleaned(text, kMostBytes));
  }
  [[nodiscard]] std::optional<std::string> find(GroupPlace place) const {
    const auto found = texts_.find(place.value);
    return found == texts_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  bool said_ = false;
  std::map<std::uint32_t, std::string> texts_;
};

}  // namespace tendon::v0::detail
