// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"

namespace tendon::v0::detail {

/// A path that leads to a directory, whichever it is just now: for those that are told a path once
/// and use it again later, as a session of Zenoh does. Nobody comes through it to a directory that
/// is not ours alone, whatever takes its name.
///
/// Owns:    a descriptor, which stands for the directory.
/// Threads: lead_to() and lead_nowhere() by one at a time; the path is used by any meanwhile.
/// Errors:  as check_directory().
/// Blocks:  never.
/// Cost:    a descriptor.
class TENDON_API DirectoryDoor {
 public:
  [[nodiscard]] static Result<DirectoryDoor> open(const std::string& directory);

  /// "/proc/self/fd/7". Where there is no /proc, the directory itself: then the path stays where it
  /// is.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] Result<void> lead_to(const std::string& directory);
  /// From now on nothing is found behind the path.
  [[nodiscard]] Result<void> lead_nowhere();

 private:
  DirectoryDoor(OwnedFd fd, std::string path, std::string directory)
      : fd_(std::move(fd)), path_(std::move(path)), first_(std::move(directory)) {}
  [[nodiscard]] Result<void> lead(const OwnedFd& target);

  OwnedFd fd_;
  std::string path_;
  std::string first_;  // where it led at first
};

}  // namespace tendon::v0::detail
