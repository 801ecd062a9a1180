// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// Limits lines to one a cause and minute. A peer that is not reached must not fill a terminal,
/// however many topics it has.
///
/// Owns:    the causes of the last minute, at most kMostCauses: a new one replaces the oldest,
///          which may be logged again too early.
/// Threads: thread-safe.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    for a known cause: a look into a map.
class LinePace {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::minutes kPause{1};
  static constexpr std::size_t kMostCauses = 256;
  /// Bytes of a line that keeps this pace.
  static constexpr std::size_t kMostLineBytes = 200;

  /// The number of this cause's lines that were held back since the last one; empty: this one is
  /// too.
  [[nodiscard]] std::optional<std::uint64_t> next(const std::string& cause, Clock::time_point now)
      TENDON_EXCLUDES(mutex_);

  /// At most `most` bytes of it, without hidden characters; "..." stands for what is left out.
  [[nodiscard]] static std::string cut(const std::string& line, std::size_t most = kMostLineBytes);

 private:
  struct Said {
    Clock::time_point when;
    std::uint64_t held_back = 0;
  };

  Mutex mutex_;
  std::map<std::string, Said> said_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
