// SPDX-License-Identifier: Apache-2.0
// Names of sockets in the runtime directory: how they come there, and how those go whose process
// was killed. A name belongs to a living process if the lock beside it is taken, or if a socket is
// bound to it. To be told apart from a leftover at any moment, a socket gets its name when it
// listens already.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"

namespace tendon::v0::detail {

/// Which file a path leads to. While somebody has the file open, or bound, no other one is equal.
struct FileId {
  dev_t device = 0;
  ino_t number = 0;

  friend bool operator==(const FileId&, const FileId&) = default;
};
/// Nothing: there is no such path. Follows no link.
[[nodiscard]] TENDON_API std::optional<FileId> file_id(const std::string& path);
/// The file behind an open descriptor.
[[nodiscard]] std::optional<FileId> file_id(int fd);

/// Does a process of ours give this name to a socket that it binds itself: that of a rendezvous, a
/// node, a controller?
[[nodiscard]] TENDON_API bool is_own_socket_name(std::string_view name);

/// `bind` makes a listening socket at the path that it is given, in the directory of `path`; then
/// the socket gets the name `path`, in place of what had it. Errors: those of `bind`; system.
[[nodiscard]] TENDON_API Result<FileId> name_socket(
    const std::string& path, const std::function<Result<void>(const std::string&)>& bind);

struct ListeningSocket {
  OwnedFd fd;
  FileId file;
};
/// A unix socket that listens at `path`, by name_socket().
[[nodiscard]] TENDON_API Result<ListeningSocket> listen_at(const std::string& path, int backlog);

/// Removes `path` if it still leads to that file.
TENDON_API void remove_name(const std::string& path, const FileId& file);

/// The lock of the file `path`, which is made where it is missing; nothing: another process has it.
/// A file that was removed meanwhile is not taken for the one that others see.
[[nodiscard]] TENDON_API Result<std::optional<OwnedFd>> take_file_lock(const std::string& path);

/// The work of one sweep_leftovers().
struct Swept {
  std::size_t looked_at = 0;  ///< names of ours that it tried to lock, to find bound or to remove
  std::size_t removed = 0;
};
/// Names that one sweep looks at. Where there are more, chance decides which.
inline constexpr std::size_t kMostSweptNames = 256;
/// Entries of a directory that one sweep reads.
inline constexpr std::size_t kMostReadNames = 16384;

/// Removes from `directory` the names of processes of this user that are gone: sockets of
/// rendezvous, nodes and controllers, stars and their locks. Kept are those whose lock is taken,
/// those to which a socket is bound, and what has no name of ours. Connects to none of them.
TENDON_API Swept sweep_leftovers(const std::string& directory, std::size_t most = kMostSweptNames);
/// The same for the runtime directories of this process, the first time that it is called in it
/// with this TENDON_RUNTIME_DIR. Makes no directory.
TENDON_API void sweep_leftovers_at_start();

}  // namespace tendon::v0::detail
