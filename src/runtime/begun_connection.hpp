// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <tendon/core/result.hpp>

#include "core/fd.hpp"
#include "session/resolve.hpp"

namespace tendon::v0::detail {

/// Returns a socket whose connection to `address` is under way or done. It becomes writable when
/// the answer has arrived, and connection_cause() then returns the result. Errors: server_busy for
/// a unix listener whose backlog is full; unreachable where the file of a unix socket is missing;
/// system.
[[nodiscard]] Result<OwnedFd> begin_connection(const SocketAddress& address,
                                               std::string_view where);
/// The errno of a failed connection; 0: it is open, or still under way.
[[nodiscard]] int connection_cause(int fd) noexcept;
[[nodiscard]] Error connection_failed(const SocketAddress& address, std::string_view where,
                                      int cause);

}  // namespace tendon::v0::detail
