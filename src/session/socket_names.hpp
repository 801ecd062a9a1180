// SPDX-License-Identifier: Apache-2.0
// Names of sockets in the runtime directory: how they are made, and how those of killed processes
// are removed. A name belongs to a living process if the lock beside it is taken, or if a socket is
// bound to it. A socket gets its name only when it listens already, so that it never looks like a
// leftover.
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

/// The file that a path leads to. While it is open or bound, no other file has an equal id.
struct FileId {
  dev_t device = 0;
  ino_t number = 0;

  friend bool operator==(const FileId&, const FileId&) = default;
};
/// Nothing: the path does not exist. Follows no link.
[[nodiscard]] TENDON_API std::optional<FileId> file_id(const std::string& path);
/// The file behind an open descriptor.
[[nodiscard]] std::optional<FileId> file_id(int fd);

/// True if a process of ours uses this name for a socket that it binds itself: that of a
/// rendezvous, a node or a controller.
[[nodiscard]] TENDON_API bool is_own_socket_name(std::string_view name);

/// Calls `bind`, which makes a listening socket at its argument, a path in the directory of `path`.
/// Then names the socket `path`, in place of any earlier file. Errors: those of `bind`; system.
[[nodiscard]] TENDON_API Result<FileId> name_socket(
    const std::string& path, const std::function<Result<void>(const std::string&)>& bind);

struct ListeningSocket {
  OwnedFd fd;
  FileId file;
};
/// Makes a unix socket that listens at `path`, by name_socket().
[[nodiscard]] TENDON_API Result<ListeningSocket> listen_at(const std::string& path, int backlog);

/// Removes `path` if it still leads to that file.
TENDON_API void remove_name(const std::string& path, const FileId& file);

/// Takes the lock of the file `path`, which is made if missing; nothing: another process holds it.
/// The lock is always on the file that others see, never on one removed meanwhile.
[[nodiscard]] TENDON_API Result<std::optional<OwnedFd>> take_file_lock(const std::string& path);

/// The work of one sweep_leftovers().
struct Swept {
  std::size_t looked_at = 0;  ///< names of ours that it tried to lock, to find bound or to remove
  std::size_t removed = 0;
};
/// Most names that one sweep checks. If there are more, a random part is checked.
inline constexpr std::size_t kMostSweptNames = 256;
/// Most entries of a directory that one sweep reads.
inline constexpr std::size_t kMostReadNames = 16384;

/// Removes from `directory` the names of dead processes of this user: sockets of rendezvous, nodes
/// and controllers, stars and their locks. Names whose lock is taken, or to which a socket is
/// bound, are kept, and so are names that are not ours. It connects to none of them.
TENDON_API Swept sweep_leftovers(const std::string& directory, std::size_t most = kMostSweptNames);
/// The same for the runtime directories of this process, once for each value of TENDON_RUNTIME_DIR.
/// Makes no directory.
TENDON_API void sweep_leftovers_at_start();

}  // namespace tendon::v0::detail
