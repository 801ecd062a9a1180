// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <tendon/core/result.hpp>
#include <tendon/tensor/atomic_file.hpp>

#include "core/fd.hpp"
#include "secure/secret_bytes.hpp"

namespace tendon::v0::detail {

/// The longest file of keys or of certificates.
inline constexpr std::size_t kMaxCredentialFileBytes = std::size_t{64} << 10;

/// limit_exceeded beyond kMaxCredentialFileBytes.
[[nodiscard]] Result<void> check_size(Bytes text, const std::filesystem::path& file);

/// Checks that no other user can change a file in `directory`, or put another in its place. Like
/// sshd, it checks the directory and those above it. Each must belong to this user or to root, and
/// nobody else may write it, except for one like /tmp, where only owners can remove files.
[[nodiscard]] Result<void> check_directories(const std::filesystem::path& directory);

/// The one case in which a group may read a file of secrets: root has made it for the group alone
/// (0440), and this user is not root, but in that group. Kubernetes passes a secret to the user of
/// a pod in this way only (`fsGroup`). A process of root needs no group, and a user's own file is
/// for that user only.
[[nodiscard]] bool is_for_group(const struct stat& file, uid_t user,
                                std::span<const gid_t> groups_of_user);

/// An open file of keys or of certificates that no other user may read or write.
///
/// Owns:    the descriptor.
/// Threads: one at a time.
/// Errors:  file_not_found, permission_denied, invalid_argument for anything but a regular file,
///          limit_exceeded, system.
/// Blocks:  on the disk; never on a FIFO.
/// Cost:    some system calls for each directory of its path.
class CredentialFile {
 public:
  /// Opens the file; a symbolic link is followed.
  [[nodiscard]] static Result<CredentialFile> open(const std::filesystem::path& path);

  /// Checks that only this user and root may write the file and, with `owner_only`, read it, except
  /// for is_for_group(). Errors: permission_denied, which says who has access and how to correct
  /// it.
  [[nodiscard]] Result<void> check_access(FileReaders readers) const;
  /// Reads from the beginning: limit_exceeded beyond kMaxCredentialFileBytes.
  [[nodiscard]] Result<SecretBytes> read() const;
  /// Makes this process the only one that changes the file, until the object is destroyed. Errors:
  /// `busy` where another process does so, or has replaced the file meanwhile.
  [[nodiscard]] Result<void> claim() const;

 private:
  CredentialFile(std::filesystem::path path, OwnedFd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;  // as the caller wrote it
  OwnedFd fd_;
};

}  // namespace tendon::v0::detail
