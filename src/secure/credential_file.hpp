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

/// Longest file of keys or of certificates.
inline constexpr std::size_t kMaxCredentialFileBytes = std::size_t{64} << 10;

/// limit_exceeded beyond kMaxCredentialFileBytes.
[[nodiscard]] Result<void> check_size(Bytes text, const std::filesystem::path& file);

/// Could another user change what lies in `directory`, or put another file in its place? Looks at
/// it and at those above it, as sshd does: each belongs to this user or to root, and nobody else
/// may write it, but for one like /tmp, where files can be removed by their owners only.
[[nodiscard]] Result<void> check_directories(const std::filesystem::path& directory);

/// Is it the one case in which a group may read a file of secrets? Root has made it for the group
/// alone (0440), and a user who is not root, and is in that group, reads it so: this is how
/// Kubernetes hands a secret to the user of a pod (`fsGroup`), and there is no other way. A process
/// of root needs no group, and a user's own file is the user's alone.
[[nodiscard]] bool is_for_group(const struct stat& file, uid_t user,
                                std::span<const gid_t> groups_of_user);

/// An open file of keys or of certificates, which the rest of the machine may not read or write.
///
/// Owns:    the descriptor.
/// Threads: one at a time.
/// Errors:  file_not_found, permission_denied, invalid_argument for what is no regular file,
///          limit_exceeded, system.
/// Blocks:  on the disk; never on a FIFO.
/// Cost:    some system calls for each directory of its path.
class CredentialFile {
 public:
  /// A symbolic link is followed.
  [[nodiscard]] static Result<CredentialFile> open(const std::filesystem::path& path);

  /// Nobody but this user and root may write the file, or, with `owner_only`, read it, but for
  /// is_for_group(): permission_denied, which says who could and what to do.
  [[nodiscard]] Result<void> check_access(FileReaders readers) const;
  /// From its beginning: limit_exceeded beyond kMaxCredentialFileBytes.
  [[nodiscard]] Result<SecretBytes> read() const;
  /// Makes this process the only one that changes it, until the object is destroyed: `busy` where
  /// another one does, or has replaced it meanwhile.
  [[nodiscard]] Result<void> claim() const;

 private:
  CredentialFile(std::filesystem::path path, OwnedFd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;  // as the caller wrote it
  OwnedFd fd_;
};

}  // namespace tendon::v0::detail
