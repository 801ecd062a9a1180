// SPDX-License-Identifier: Apache-2.0
// What this process knows about its own machine and user, and the directory where peers of the same
// user meet.
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

/// /proc/sys/kernel/random/boot_id as 16 bytes: equal on two machines only if they are one. All
/// zero when it cannot be read. Containers of one machine share it: it is a hint to try, never a
/// proof.
[[nodiscard]] Nonce128 boot_id();
/// gethostname(), cut to kMaxIdentityTextBytes; "unknown" when there is none.
[[nodiscard]] std::string host_name();
[[nodiscard]] std::int64_t process_id();
/// The effective uid: the one SO_PEERCRED shows to a peer.
[[nodiscard]] std::uint32_t user_id();

/// Where this process puts its sockets: `$TENDON_RUNTIME_DIR`, else `/run/user/<uid>/tendon` if
/// `/run/user/<uid>` is ours and can be written to, else `/tmp/tendon-<uid>`. Nothing else in the
/// environment counts, so that processes of one user meet however they were started. Made with mode
/// 0700 if missing. Refused (permission_denied) when it is a symbolic link, no directory, another
/// user's, or open to others; what TENDON_RUNTIME_DIR asks for and cannot be had is an error.
[[nodiscard]] TENDON_API Result<std::string> runtime_directory();
/// The same for a process whose environment has `asked` as TENDON_RUNTIME_DIR; empty: nothing. For
/// those that look again: a program may change its environment meanwhile.
[[nodiscard]] TENDON_API Result<std::string> runtime_directory(std::string_view asked);
/// TENDON_RUNTIME_DIR; empty: it is not set.
[[nodiscard]] TENDON_API std::string asked_runtime_directory();
/// Is this directory ours alone? Errors: as runtime_directory(), but nothing is made.
[[nodiscard]] TENDON_API Result<void> check_directory(const std::string& directory);
/// A descriptor that stands for a directory that is ours alone, whatever becomes of its path.
[[nodiscard]] TENDON_API Result<OwnedFd> open_directory(const std::string& directory);
/// Each directory that runtime_directory() may return, where it is there and ours alone.
[[nodiscard]] TENDON_API std::vector<std::string> existing_runtime_directories();
/// How often a process that serves something in the directory looks at it, whatever it is told.
inline constexpr std::chrono::seconds kLookAtDirectoryEvery{4};
/// Whether TENDON_RUNTIME_DIR is set.
[[nodiscard]] bool runtime_directory_is_asked_for();
/// `<directory>/<32 hex digits>`: the one form of a rendezvous path, so that no path ever crosses
/// the wire.
[[nodiscard]] TENDON_API std::string rendezvous_path(const std::string& directory,
                                                     const Nonce128& token);
/// The peer's rendezvous socket, searched in every directory that runtime_directory() may return
/// for a process of this user (one may have TENDON_RUNTIME_DIR and the other, started by cron or
/// sudo, not). not_found names what was searched.
[[nodiscard]] Result<std::string> find_rendezvous(const Nonce128& token);

/// What follows the id of a Context in the name of its nodes' socket.
inline constexpr std::string_view kNodeSuffix = ".node";

}  // namespace tendon::v0::detail
