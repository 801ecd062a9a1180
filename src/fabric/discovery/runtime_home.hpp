// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "fabric/ways/dialler.hpp"
#include "fabric/zenoh/star_seat.hpp"
#include "runtime/acceptor.hpp"
#include "runtime/context_core.hpp"
#include "runtime/directory_watch.hpp"
#include "session/directory_door.hpp"

namespace tendon::v0::detail {

/// A change of the runtime directory in which the nodes of a Context are served, or its renewal.
struct DirectoryChange {
  std::string from;    ///< empty: they were not served
  std::string to;      ///< empty: they are not served
  std::string reason;  ///< of the change
};

/// Handles changes, on a thread that may wait.
class DirectoryListener {
 public:
  virtual ~DirectoryListener() = default;
  virtual void on_directory_change(const DirectoryChange& change) = 0;
};

/// The names of a Context's nodes in the runtime directory, kept where newcomers look for them: the
/// unix socket of the Context, its seats in stars, and the path by which its sessions of Zenoh find
/// the star. Links need none of it, and stay.
///
///   served  -> moving    the directory was removed or replaced, a name in it is gone, or another
///                        directory precedes it in the fixed order
///   served  -> moving    it is not ours alone any more
///   moving  -> served    all of it is served in the right directory
///   moving  -> nowhere   there is none that is ours alone: nothing is served
///   nowhere -> moving    there is one again
///   any     -> stopped   stop()
///
/// Owns:    the socket, shares of the seats, a watch, a place among the Dialler's threads for a
///          move.
/// Threads: thread-safe. The state is under the lock; one move runs at a time, without the lock.
/// Errors:  create(): those of runtime_directory() and Acceptor. Later ones are reported in changes
///          and in the log, and tried again.
/// Blocks:  stop(): while a move runs, as StarSeat.
/// Cost:    two descriptors, and those of the watch; a look is about ten system calls.
class RuntimeHome final : public std::enable_shared_from_this<RuntimeHome> {
 public:
  /// Serves the socket of this Context. `asked` is TENDON_RUNTIME_DIR.
  [[nodiscard]] static Result<std::shared_ptr<RuntimeHome>> create(
      const std::shared_ptr<ContextCore>& context, const std::shared_ptr<Dialler>& dialler,
      std::string asked);
  RuntimeHome(std::shared_ptr<ContextCore> context, std::shared_ptr<Dialler> dialler,
              std::string asked, DirectoryDoor door)
      : context_(std::move(context)),
        dialler_(std::move(dialler)),
        asked_(std::move(asked)),
        door_(std::move(door)) {}
  RuntimeHome(const RuntimeHome&) = delete;
  RuntimeHome& operator=(const RuntimeHome&) = delete;

  /// Admits peers at its socket. Call it once, first.
  [[nodiscard]] Result<void> serve(Profile profile, const std::weak_ptr<OpenHandler>& handler);
  /// The directory in which it serves now; empty: none.
  [[nodiscard]] std::string directory() const TENDON_EXCLUDES(mutex_);
  [[nodiscard]] const DirectoryDoor& door() const noexcept { return door_; }
  /// Moves the seat with the directory from now on.
  void add(const std::shared_ptr<StarSeat>& seat) TENDON_EXCLUDES(mutex_);
  void add(std::weak_ptr<DirectoryListener> listener) TENDON_EXCLUDES(mutex_);
  /// Checks that all is served where it should be; if not, moves on another thread.
  void look() TENDON_EXCLUDES(mutex_);
  /// Stops serving its socket, and moving.
  void stop() TENDON_EXCLUDES(mutex_);

 private:
  enum class State : std::uint8_t { served, moving, nowhere, stopped };

  /// The reason for a move.
  enum class Reason : std::uint8_t { another_directory, a_name_is_gone };

  void move() TENDON_EXCLUDES(mutex_);
  /// Serves there all names, or the missing ones.
  [[nodiscard]] Result<void> serve_in(const std::string& directory, Reason why)
      TENDON_EXCLUDES(mutex_);
  /// Serves nothing.
  void leave() TENDON_EXCLUDES(mutex_);
  /// True if all is there: the directory, and each name in it.
  [[nodiscard]] bool stands_in(const std::string& directory) const TENDON_REQUIRES(mutex_);
  void follow() TENDON_EXCLUDES(mutex_);
  void tell(const DirectoryChange& change) TENDON_EXCLUDES(mutex_);
  [[nodiscard]] std::string socket_in(const std::string& directory) const;
  [[nodiscard]] std::vector<std::shared_ptr<StarSeat>> seats() const TENDON_EXCLUDES(mutex_);

  const std::shared_ptr<ContextCore> context_;
  const std::shared_ptr<Dialler> dialler_;
  const std::string asked_;
  DirectoryDoor door_;
  std::shared_ptr<Acceptor> acceptor_;
  std::shared_ptr<DirectoryWatch> watch_;
  mutable Mutex mutex_;
  State state_ TENDON_GUARDED_BY(mutex_) = State::served;
  std::string directory_ TENDON_GUARDED_BY(mutex_);
  OwnedFd opened_ TENDON_GUARDED_BY(mutex_);       // the directory, as a file
  std::string refusal_ TENDON_GUARDED_BY(mutex_);  // why it is nowhere, as reported
  std::vector<std::weak_ptr<StarSeat>> seats_ TENDON_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<DirectoryListener>> listeners_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
