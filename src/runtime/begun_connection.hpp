// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"
#include "session/resolve.hpp"

namespace tendon::v0::detail {

/// A socket whose connection to `address` is under way, or there: it is writable when the answer
/// has arrived, and connection_cause() has it. Errors: server_busy for a unix listener whose
/// backlog is full; unreachable where no file of a unix socket is; system.
[[nodiscard]] Result<OwnedFd> begin_connection(const SocketAddress& address,
                                               std::string_view where);
/// Why the connection has failed, as an errno; 0: it is there, or still under way.
[[nodiscard]] int connection_cause(int fd) noexcept;
[[nodiscard]] Error connection_failed(const SocketAddress& address, std::string_view where,
                                      int cause);

}  // namespace tendon::v0::detail
