// SPDX-License-Identifier: Apache-2.0
// Facts about this process's machine and user, and the directory where peers of the same user meet.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "core/fd.hpp"
#include "session/nonce128.hpp"

namespace tendon::v0::detail {

/// /proc/sys/kernel/random/boot_id as 16 bytes: two machines never have the same. All zero when it
/// cannot be read. Containers of one machine share it, so it is a hint to try, never a proof.
[[nodiscard]] Nonce128 boot_id();
/// gethostname(), cut to kMaxIdentityTextBytes; "unknown" when there is none.
[[nodiscard]] std::string host_name();
[[nodiscard]] std::int64_t process_id();
/// The effective uid, which SO_PEERCRED shows to a peer.
[[nodiscard]] std::uint32_t user_id();

/// The directory for this process's sockets: `$TENDON_RUNTIME_DIR`, else `/run/user/<uid>/tendon`
/// if `/run/user/<uid>` is ours and writable, else `/tmp/tendon-<uid>`. No other part of the
/// environment counts, so that processes of one user meet however they were started. It is made
/// with mode 0700 if missing. It is refused (permission_denied) when it is a symbolic link, no
/// directory, another user's, or open to others. An unusable TENDON_RUNTIME_DIR is an error.
[[nodiscard]] TENDON_API Result<std::string> runtime_directory();
/// The same for a process whose TENDON_RUNTIME_DIR was `asked`; empty: unset. It serves repeated
/// looks, because a program may change its environment meanwhile.
[[nodiscard]] TENDON_API Result<std::string> runtime_directory(std::string_view asked);
/// TENDON_RUNTIME_DIR; empty: it is not set.
[[nodiscard]] TENDON_API std::string asked_runtime_directory();
/// Checks that this directory is ours alone. Errors: as runtime_directory(), but nothing is made.
[[nodiscard]] TENDON_API Result<void> check_directory(const std::string& directory);
/// Opens a descriptor for a directory that is ours alone; it stays valid whatever happens to its
/// path.
[[nodiscard]] TENDON_API Result<OwnedFd> open_directory(const std::string& directory);
/// Each directory that runtime_directory() may return, if it exists and is ours alone.
[[nodiscard]] TENDON_API std::vector<std::string> existing_runtime_directories();
/// How often a process that serves something in the directory looks at it, even without notices.
inline constexpr std::chrono::seconds kLookAtDirectoryEvery{4};
/// Whether TENDON_RUNTIME_DIR is set.
[[nodiscard]] bool runtime_directory_is_asked_for();
/// `<directory>/<32 hex digits>`: the only form of a rendezvous path, so that no path is ever sent.
[[nodiscard]] TENDON_API std::string rendezvous_path(const std::string& directory,
                                                     const Nonce128& token);
/// The peer's rendezvous socket. It is searched in every directory that runtime_directory() may
/// return for a process of this user. One process may have TENDON_RUNTIME_DIR, while another,
/// started by cron or sudo, does not. not_found names the searched directories.
[[nodiscard]] Result<std::string> find_rendezvous(const Nonce128& token);

/// The suffix after the id of a Context in the name of its nodes' socket.
inline constexpr std::string_view kNodeSuffix = ".node";

}  // namespace tendon::v0::detail
