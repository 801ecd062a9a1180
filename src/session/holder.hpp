// SPDX-License-Identifier: Apache-2.0
// Finds the process that holds an address, as far as the kernel tells this user.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tendon::v0::detail {

/// A process that listens at this TCP port, on any address of this network namespace. It reads
/// /proc, where only root sees other users' processes. Blocks: for a look at each process.
[[nodiscard]] std::optional<pid_t> listener_at_port(std::uint16_t port);
/// The process at the other end of a connected unix socket, by SO_PEERCRED.
[[nodiscard]] std::optional<pid_t> process_behind(int socket);
/// "pid 4711 (python3), which is stopped".
[[nodiscard]] std::string process_text(pid_t pid);

}  // namespace tendon::v0::detail
