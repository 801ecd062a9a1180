// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"

namespace tendon::v0::detail::secure {

/// A file in the NSS Key Log format. A network debugger, or anybody else who has it, can read the
/// traffic of secure links with it.
///
/// Owns:    the descriptor.
/// Threads: safe everywhere.
/// Errors:  those of open(): as CredentialFile, and system.
/// Blocks:  on the disk, for some lines per handshake.
/// Cost:    a system call per line.
class KeyLog {
 public:
  /// Makes the file with mode 0600, or appends to an existing one. That must be no symbolic link,
  /// and nobody else may read or write it. Each call logs a warning.
  [[nodiscard]] static Result<std::shared_ptr<const KeyLog>> open(const std::string& path);

  /// A full disk loses the line, because links do not depend on it.
  void add(std::string_view line) const noexcept;

 private:
  explicit KeyLog(OwnedFd fd) : fd_(std::move(fd)) {}

  const OwnedFd fd_;
};

}  // namespace tendon::v0::detail::secure
