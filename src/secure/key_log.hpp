// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"

namespace tendon::v0::detail::secure {

/// A file of the format NSS Key Log, with which a debugger of networks reads what secure links
/// carry; so does everybody else who has it.
///
/// Owns:    the descriptor.
/// Threads: safe everywhere.
/// Errors:  of open(): those of CredentialFile, and system.
/// Blocks:  on the disk, some lines for each handshake.
/// Cost:    a system call a line.
class KeyLog {
 public:
  /// Makes the file with mode 0600, or appends to one that nobody else may read or write and that
  /// is no symbolic link. It warns in the log, each time.
  [[nodiscard]] static Result<std::shared_ptr<const KeyLog>> open(const std::string& path);

  /// A disk that is full loses the line: links do not depend on it.
  void add(std::string_view line) const noexcept;

 private:
  explicit KeyLog(OwnedFd fd) : fd_(std::move(fd)) {}

  const OwnedFd fd_;
};

}  // namespace tendon::v0::detail::secure
