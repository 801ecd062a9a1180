// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <tendon/fabric/gap.hpp>

namespace tendon::v0::detail {

/// What a subscriber has seen of one publisher's samples, and so what it has missed.
///
/// Owns:    counters.
/// Threads: none of its own.
/// Errors:  none: a sequence that goes back is said.
/// Blocks:  never.
/// Cost:    a few comparisons.
class GapFinder {
 public:
  struct Missing {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    GapReason reason = GapReason::overflow;

    friend bool operator==(const Missing&, const Missing&) = default;
  };
  enum class Order : std::uint8_t { follows, repeated };
  struct Found {
    Order order = Order::follows;
    std::optional<Missing> missing{};  ///< before this sample

    friend bool operator==(const Found&, const Found&) = default;
  };

  GapFinder() = default;
  /// Goes on, over a new link, behind the last sample that was seen over another one.
  explicit GapFinder(std::uint64_t seen) : last_(seen), resumed_(seen != 0) {}

  /// The last sample that was seen; 0: none.
  [[nodiscard]] std::uint64_t last() const noexcept { return last_; }

  /// A sample came; `tag`: how many before it the publisher counts as lost by overflow.
  [[nodiscard]] Found on_sample(std::uint64_t sequence, std::uint32_t tag) noexcept {
    if (last_ != 0 && sequence <= last_) return {Order::repeated};
    Found found;
    found.missing = before(sequence, tag);
    last_ = sequence;
    resumed_ = false;
    return found;
  }
  /// The publisher has ended behind its sample `last`; 0: it has published nothing, or does not
  /// say.
  [[nodiscard]] std::optional<Missing> on_end(std::uint64_t last) noexcept {
    if (last_ == 0 || last <= last_) return std::nullopt;
    const Missing missing{last_ + 1, last, resumed_ ? GapReason::reconnect : GapReason::overflow};
    last_ = last;
    return missing;
  }

 private:
  [[nodiscard]] std::optional<Missing> before(std::uint64_t sequence,
                                              std::uint32_t tag) const noexcept {
    if (last_ == 0 || sequence == last_ + 1) return std::nullopt;
    const std::uint64_t count = sequence - last_ - 1;
    const GapReason reason = resumed_                             ? GapReason::reconnect
                             : tag == std::min(count, kMostInTag) ? GapReason::overflow
                                                                  : GapReason::history;
    return Missing{last_ + 1, sequence - 1, reason};
  }

  static constexpr std::uint64_t kMostInTag = std::numeric_limits<std::uint32_t>::max();

  std::uint64_t last_ = 0;
  bool resumed_ = false;  // and nothing has come since
};

}  // namespace tendon::v0::detail
