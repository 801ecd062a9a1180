// SPDX-License-Identifier: Apache-2.0
// What this process knows about its own machine and user, and the directory where peers of the same
// user meet.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <vector>

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

/// Removes the sockets of rendezvous and of nodes in `directory` that belong to this user, have no
/// listener and are older than `min_age` (a younger one may be bound but not yet listening); the
/// number removed.
std::size_t sweep_stale_sockets(const std::string& directory,
                                std::chrono::seconds min_age = std::chrono::seconds(60));

}  // namespace tendon::v0::detail
