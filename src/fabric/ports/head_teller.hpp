// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <tendon/core/mutex.hpp>

#include "runtime/context_core.hpp"
#include "runtime/timers.hpp"

namespace tendon::v0::detail {

/// A publisher whose readers may be behind.
class HeadSource {
 public:
  virtual ~HeadSource() = default;
  /// Tells its position to readers that are behind. Returns their number.
  virtual std::size_t say_head() = 0;
};

/// Tells over sockets the positions of a Context's publishers whose readers are behind: nobody can
/// read their head page there. A reader thus knows at least that much when the publisher dies.
///
/// Owns:    no publisher.
/// Threads: thread-safe; publishers are asked under no lock.
/// Errors:  none.
/// Blocks:  never.
/// Cost:    nothing while nobody is behind; then kMost words at most in each kPeriod, in turn.
class HeadTeller final : public Timed, public std::enable_shared_from_this<HeadTeller> {
 public:
  explicit HeadTeller(std::shared_ptr<ContextCore> context) : context_(std::move(context)) {}

  /// Notes that a reader of it is behind over a socket. Once, until on_time() finds that none is.
  void note_behind(std::weak_ptr<HeadSource> publisher) TENDON_EXCLUDES(mutex_);
  // Timed
  void on_time() override TENDON_EXCLUDES(mutex_);

  static constexpr std::size_t kMost = 64;
  static constexpr std::chrono::milliseconds kPeriod{500};

 private:
  const std::shared_ptr<ContextCore> context_;
  Mutex mutex_;
  std::deque<std::weak_ptr<HeadSource>> behind_ TENDON_GUARDED_BY(mutex_);
  bool armed_ TENDON_GUARDED_BY(mutex_) = false;
};

}  // namespace tendon::v0::detail
