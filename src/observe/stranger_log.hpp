// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/mutex.hpp>

namespace tendon::v0::detail {

/// The origin of a connection before its peer is known.
struct Stranger {
  std::string address;  ///< as a line names it: "10.0.0.7:40312"
  std::string source;   ///< strangers of one source share a line a second: "10.0.0.7"
};

/// The lines about strangers that were turned away, at `warn`: a port scan must not fill a disk. A
/// refusal beyond the pace is counted, and the count has a line of its own.
///
/// Owns:    the times of the lines of the last second, and their sources.
/// Threads: thread-safe; it logs without its lock.
/// Errors:  none.
/// Blocks:  never, but for the callback of the log.
/// Cost:    a lock, a look at kMostLines entries, and the line.
class StrangerLog {
 public:
  using Clock = std::chrono::steady_clock;
  /// The time for one line about a source, kMostLines about all, and one line with a count.
  static constexpr std::chrono::seconds kPause{1};
  static constexpr std::size_t kMostLines = 10;
  /// Bytes of the text of a line.
  static constexpr std::size_t kMostTextBytes = 512;

  /// Logs a refusal. `context` is that of LogLine. If this is the first refusal beyond the pace
  /// since the last count, returns when tell_left_out() is due; without that call the next refusal
  /// logs the count.
  std::optional<Clock::time_point> refuse(std::string_view context, std::string_view where,
                                          const Stranger& stranger, std::string_view why,
                                          Clock::time_point now) TENDON_EXCLUDES(mutex_);
  /// Writes the count, if there is one.
  void tell_left_out() TENDON_EXCLUDES(mutex_);

 private:
  struct Said {
    Clock::time_point when;
    std::string source;
  };

  Mutex mutex_;
  std::deque<Said> said_ TENDON_GUARDED_BY(mutex_);  // in the last kPause
  std::uint64_t left_out_ TENDON_GUARDED_BY(mutex_) = 0;
  Clock::time_point count_is_due_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
