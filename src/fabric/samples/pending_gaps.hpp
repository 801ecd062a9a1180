// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "fabric/samples/gap_finder.hpp"

namespace tendon::v0::detail {

/// The missing samples before the next one that the program gets: the next Sample::gaps.
///
/// Further missing samples with the same reason extend a gap. While no sample is taken, as when all
/// are too old, reasons could alternate without end: beyond kMost gaps the last one grows, with its
/// own reason.
///
/// Owns:    the gaps, each after the one before it.
/// Threads: none of its own.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    nothing while nothing is missing.
class PendingGaps {
 public:
  using Missing = GapFinder::Missing;

  void add(const Missing& missing) {
    const bool goes_on = !gaps_.empty() && missing.first == gaps_.back().last + 1 &&
                         missing.reason == gaps_.back().reason;
    if (goes_on || gaps_.size() == kMost) {
      gaps_.back().last = missing.last;
    } else {
      gaps_.push_back(missing);
    }
  }
  [[nodiscard]] std::vector<Missing> take() { return std::exchange(gaps_, {}); }

  static constexpr std::size_t kMost = 16;

 private:
  std::vector<Missing> gaps_;
};

}  // namespace tendon::v0::detail
