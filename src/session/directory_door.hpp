// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"

namespace tendon::v0::detail {

/// A path that leads to a directory, which can be changed. It serves users that read a path once
/// and use it again later, such as a session of Zenoh. It never leads to a directory that is not
/// ours alone, even if another directory takes the same name.
///
/// Owns:    a descriptor, which stands for the directory.
/// Threads: one at a time calls lead_to() and lead_nowhere(); any may use the path meanwhile.
/// Errors:  as check_directory().
/// Blocks:  never.
/// Cost:    a descriptor.
class TENDON_API DirectoryDoor {
 public:
  [[nodiscard]] static Result<DirectoryDoor> open(const std::string& directory);

  /// "/proc/self/fd/7". Without /proc it is the directory itself, and then the path cannot change.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] Result<void> lead_to(const std::string& directory);
  /// From now on the path leads to nothing.
  [[nodiscard]] Result<void> lead_nowhere();

 private:
  DirectoryDoor(OwnedFd fd, std::string path, std::string directory)
      : fd_(std::move(fd)), path_(std::move(path)), first_(std::move(directory)) {}
  [[nodiscard]] Result<void> lead(const OwnedFd& target);

  OwnedFd fd_;
  std::string path_;
  std::string first_;  // the directory to which it led at first
};

}  // namespace tendon::v0::detail
