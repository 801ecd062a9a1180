// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <tendon/core/mutex.hpp>
#include <vector>

#include "core/fd.hpp"
#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// Says when it is time to look at a directory again: the kernel tells of a change (inotify) of it,
/// in its parent, or of files in it; and every kLookAtDirectoryEvery, because the kernel tells
/// nobody that something was mounted there, and may have no inotify left for this user.
///
///   listening -> resting     something has changed. More may follow: names of a directory go one
///                            by one, and a parent, as /tmp, may be busy with others
///   resting -> listening     kRest later; it looks if the change was about what is followed
///
/// Owns:    a descriptor of inotify.
/// Threads: thread-safe. `look` runs where the Context makes progress, under no lock, twice at a
///          time at worst.
/// Errors:  none: without inotify it looks by the clock alone.
/// Blocks:  never.
/// Cost:    a wake-up every kLookAtDirectoryEvery, and 1 / kRest a second while the parent is busy.
class DirectoryWatch final : public FdHandler,
                             public Timed,
                             public std::enable_shared_from_this<DirectoryWatch> {
 public:
  using Look = std::function<void()>;
  enum class Notices : std::uint8_t { all, by_kernel, by_clock };

  DirectoryWatch(std::shared_ptr<ContextCore> context, Look look, Notices notices = Notices::all)
      : context_(std::move(context)), look_(std::move(look)), notices_(notices) {}
  DirectoryWatch(const DirectoryWatch&) = delete;
  DirectoryWatch& operator=(const DirectoryWatch&) = delete;
  ~DirectoryWatch() override = default;

  /// From now on it is about this directory, and these files in it; empty: about none, and the
  /// clock goes on.
  void follow(const std::string& directory, const std::vector<std::string>& files)
      TENDON_EXCLUDES(mutex_);
  /// Looks no more, but for a look that runs.
  void stop() TENDON_EXCLUDES(mutex_);

  void on_ready(int fd, std::uint32_t events) override TENDON_EXCLUDES(mutex_);
  void on_time() override TENDON_EXCLUDES(mutex_);

  static constexpr std::chrono::milliseconds kRest{250};

 private:
  enum class State : std::uint8_t { listening, resting, stopped };
  using Clock = std::chrono::steady_clock;

  void begin_notices(const std::string& directory, const std::vector<std::string>& files)
      TENDON_REQUIRES(mutex_);
  void end_notices() TENDON_REQUIRES(mutex_);
  /// Takes what the kernel has to tell. True: it is about what is followed.
  [[nodiscard]] bool take_notices() TENDON_REQUIRES(mutex_);

  const std::shared_ptr<ContextCore> context_;
  const Look look_;
  const Notices notices_;
  Mutex mutex_;
  State state_ TENDON_GUARDED_BY(mutex_) = State::listening;
  bool has_news_ TENDON_GUARDED_BY(mutex_) = false;  // to look at when the rest is over
  OwnedFd inotify_ TENDON_GUARDED_BY(mutex_);
  int parent_ TENDON_GUARDED_BY(mutex_) = -1;   // inotify's number of it
  std::string name_ TENDON_GUARDED_BY(mutex_);  // of the directory in its parent
  Clock::time_point next_look_ TENDON_GUARDED_BY(mutex_){};
  bool is_timed_ TENDON_GUARDED_BY(mutex_) = false;  // the look by the clock has its timer
};

}  // namespace tendon::v0::detail
