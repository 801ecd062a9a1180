// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>
#include <tendon/core/bytes.hpp>
#include <tendon/core/result.hpp>
#include <tendon/tensor/atomic_file.hpp>
#include <type_traits>
#include <utility>

#include "core/fd.hpp"
#include "secure/secret_bytes.hpp"

namespace tendon::v0::detail {

/// The longest file of keys or of certificates.
inline constexpr std::size_t kMaxCredentialFileBytes = std::size_t{64} << 10;

/// limit_exceeded beyond kMaxCredentialFileBytes.
[[nodiscard]] Result<void> check_size(Bytes text, const std::filesystem::path& file);

/// True if the text holds a key that hosts share, or the private key of a certificate.
[[nodiscard]] bool has_secrets(Bytes text);

/// Checks that no other user can put another file or folder in the place of `path`. Like sshd, it
/// checks each directory on the way, and `path` if it is one. Each must belong to this user or to
/// root, and nobody else may write it, except for one like /tmp, where only owners can remove
/// files. Symbolic links are followed one after the other. Each link must belong to this user or to
/// root, and the directories around it are checked too.
[[nodiscard]] Result<void> check_directories(const std::filesystem::path& path);

/// The one case in which a group may read a file of secrets: root has made it for the group alone
/// (0440), and this user is not root, but in that group. Kubernetes passes a secret to the user of
/// a pod in this way only (`fsGroup`). A process of root needs no group, and a user's own file is
/// for that user only.
[[nodiscard]] bool is_for_group(const struct stat& file, uid_t user,
                                std::span<const gid_t> groups_of_user);

/// The Result that `Parse` returns.
template <class Parse>
using Parsed = std::invoke_result_t<const Parse&, Bytes, const std::filesystem::path&>;

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
  static constexpr std::string_view kNewKey = "make a new key if anybody may have read this one";

  /// Opens the file; a symbolic link is followed.
  [[nodiscard]] static Result<CredentialFile> open(const std::filesystem::path& path);

  /// Checks that only this user and root may write the file and, with `owner_only`, read it, except
  /// for is_for_group(). Errors: permission_denied, which says who has access and how to correct
  /// it. `exposed`: the advice for a file that somebody may have read.
  [[nodiscard]] Result<void> check_access(FileReaders readers,
                                          std::string_view exposed = kNewKey) const;
  /// Reads from the beginning: limit_exceeded beyond kMaxCredentialFileBytes.
  [[nodiscard]] Result<SecretBytes> read() const;
  /// Makes this process the only one that changes the file, until the object is destroyed. Errors:
  /// `busy` where another process does so, or has replaced the file meanwhile.
  [[nodiscard]] Result<void> claim() const;

  /// Parses the text if check_access() finds nothing. A file of another kind is named as such
  /// first, so that nobody changes the mode of a file that only has the wrong name.
  template <class Parse>
  [[nodiscard]] Parsed<Parse> parse(Bytes text, FileReaders readers, const Parse& parse) const {
    const Result<void> access = check_access(readers);
    const bool is_of_its_kind = readers == FileReaders::owner_only
                                    ? has_secrets(text)
                                    : as_text(text).find("-----BEGIN") != std::string_view::npos;
    if (!access && is_of_its_kind) return access.error();
    auto parsed = parse(text, path_);
    if (parsed && !access) return access.error();
    return parsed;
  }

 private:
  CredentialFile(std::filesystem::path path, OwnedFd fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;  // as the caller wrote it
  OwnedFd fd_;
};

/// The same of a file that is opened and read for it.
template <class Parse>
[[nodiscard]] Parsed<Parse> parse_file(const std::filesystem::path& path, FileReaders readers,
                                       const Parse& parse) {
  TENDON_TRY(file, CredentialFile::open(path));
  TENDON_TRY(text, file.read());
  return file.parse(text.bytes(), readers, parse);
}

}  // namespace tendon::v0::detail
