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

/// Says when to look at a directory again. The kernel reports (inotify) a change of the directory,
/// in its parent, or of files in it. It also looks every kLookAtDirectoryEvery, because the kernel
/// reports no mount there, and may have no inotify left for this user.
///
///   listening -> resting     something has changed. More may follow: names of a directory may
///                            disappear one by one, and a parent such as /tmp may be busy
///   resting -> listening     after kRest; it looks if the change concerned a followed path
///
/// Owns:    a descriptor of inotify.
/// Owns:    a descriptor of inotify.
/// Threads: thread-safe. `look` runs where the Context makes progress, under no lock, and at most
///          twice at a time.
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

  /// Follows this directory, and these files in it, from now on. Empty: follows none, but still
  /// looks by the clock.
  void follow(const std::string& directory, const std::vector<std::string>& files)
      TENDON_EXCLUDES(mutex_);
  /// Stops looking; a look that already runs finishes.
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
  /// Reads the kernel's notices. True: one of them concerns the followed directory or files.
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
