// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <tendon/core/mutex.hpp>
#include <tendon/core/result.hpp>
#include <utility>

#include "fabric/zenoh/star_server.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// The part of one process in the star of a domain: it serves the place, or is ready to, in the
/// present runtime directory.
///
/// Owns:    a StarServer.
/// Threads: thread-safe; serve_in() and leave() by one at a time.
/// Errors:  those of StarServer.
/// Blocks:  serve_in(), leave() and the destructor, as that of StarServer.
/// Cost:    as StarServer.
class StarSeat {
 public:
  /// Serves the place of this name in the directory.
  [[nodiscard]] static Result<std::shared_ptr<StarSeat>> take(const std::string& directory,
                                                              std::string name);
  explicit StarSeat(std::string name) : name_(std::move(name)) {}

  /// As StarServer.
  void look_at(const ZenohPort& client) TENDON_EXCLUDES(mutex_);
  /// Sets the session that sees whether somebody serves.
  void watch_by(const std::shared_ptr<ZenohPort>& client) TENDON_EXCLUDES(mutex_);

  /// Serves there from now on, even if it did before.
  [[nodiscard]] Result<void> serve_in(const std::string& directory) TENDON_EXCLUDES(mutex_);
  /// Serves nowhere until serve_in().
  void leave() TENDON_EXCLUDES(mutex_);
  /// The path of the place in a directory.
  [[nodiscard]] std::string path_in(const std::string& directory) const {
    return directory + '/' + name_;
  }
  /// True if a process has a socket at the place: this one, or another.
  [[nodiscard]] bool is_served_in(const std::string& directory) const;

 private:
  [[nodiscard]] std::shared_ptr<StarServer> server() const TENDON_EXCLUDES(mutex_);

  const std::string name_;
  mutable Mutex mutex_;
  std::shared_ptr<StarServer> server_ TENDON_GUARDED_BY(mutex_);  // null: it has left
  std::weak_ptr<ZenohPort> client_ TENDON_GUARDED_BY(mutex_);
};

}  // namespace tendon::v0::detail
