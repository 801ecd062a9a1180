// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <tendon/fabric/gap.hpp>

#include "fabric/samples/cursor.hpp"

namespace tendon::v0::detail {

/// The samples that a subscriber has seen of one publisher, and thus its missing ones.
///
/// Owns:    counters.
/// Threads: none of its own.
/// Errors:  none: a sequence that moves back is reported.
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
    std::uint64_t thinned = 0;         ///< left out by the rate, before the missing ones

    friend bool operator==(const Found&, const Found&) = default;
  };

  /// Whether the subscriber asked for a rate: if not, all samples that do not arrive are missing.
  enum class Rate : std::uint8_t { all, thinned };

  GapFinder() = default;
  explicit GapFinder(Rate rate) : rate_(rate) {}
  /// Continues, over a new link, after the last sample that was seen over another one.
  GapFinder(std::uint64_t seen, Rate rate) : last_(seen), resumed_(seen != 0), rate_(rate) {}

  /// The last sample that was seen; 0: none.
  [[nodiscard]] std::uint64_t last() const noexcept { return last_; }

  /// Handles an arrived sample; `tag` is that of its Cursor.
  [[nodiscard]] Found on_sample(std::uint64_t sequence, std::uint32_t tag) noexcept {
    if (last_ != 0 && sequence <= last_) return {Order::repeated};
    const std::uint32_t count = tag & Cursor::kMostInTag;
    const Found found =
        up_to(sequence - 1, count == Cursor::kMostInTag ? kAll : count,
              (tag & Cursor::kShortOfMemory) != 0 ? GapReason::history : GapReason::overflow);
    last_ = sequence;
    resumed_ = false;
    return found;
  }
  /// Handles an unreadable sample whose number is unknown; `tag` as above. It is then last(), which
  /// is 0 while nothing was seen.
  [[nodiscard]] Found on_unreadable(std::uint32_t tag) noexcept {
    if (last_ == 0) return {};
    const std::uint32_t count = tag & Cursor::kMostInTag;
    return on_sample(last_ + 1 + (count == Cursor::kMostInTag ? 0 : count), tag);
  }
  /// Handles a publisher that was lost without a word, after publishing up to `last`. With a rate
  /// nobody knows which samples it would have left out.
  [[nodiscard]] Found on_loss(std::uint64_t last) noexcept {
    if (last_ == 0 || last <= last_ || rate_ == Rate::thinned) return {};
    const Found found{.missing = Missing{last_ + 1, last, GapReason::died}};
    last_ = last;
    return found;
  }
  /// Handles the end of the publisher after its sample `last`, with `lost` samples after the last
  /// shown one. `last` 0: it has published nothing, or does not say.
  [[nodiscard]] Found on_end(std::uint64_t last, std::uint64_t lost) noexcept {
    if (last_ == 0 || last <= last_) return {};
    const Found found = up_to(last, lost, GapReason::overflow);
    last_ = last;
    return found;
  }

 private:
  // The samples after the last one: first those left out, then lost ones. A sample that a publisher
  // neither shows nor counts, without having been asked for a rate, was dropped for want of memory.
  [[nodiscard]] Found up_to(std::uint64_t last, std::uint64_t lost,
                            GapReason reason) const noexcept {
    if (last_ == 0 || last <= last_) return {};
    const std::uint64_t count = last - last_;
    if (rate_ == Rate::all && lost < count) {
      lost = count;
      reason = GapReason::history;
    }
    lost = std::min(lost, count);
    Found found{.thinned = count - lost};
    if (resumed_) reason = GapReason::reconnect;
    if (lost != 0) found.missing = Missing{last - lost + 1, last, reason};
    return found;
  }

  static constexpr std::uint64_t kAll = std::numeric_limits<std::uint64_t>::max();

  std::uint64_t last_ = 0;
  bool resumed_ = false;  // and nothing has arrived since
  Rate rate_ = Rate::all;
};

}  // namespace tendon::v0::detail
