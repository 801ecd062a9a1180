// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/profile.hpp>

#include "session/resolve.hpp"

namespace tendon::v0::detail {

/// Decides whether a socket may listen at `place`, which the caller knows as `named`, for peers
/// that show what `security` asks for. All code of Tendon that binds a socket calls it, and nothing
/// else decides. Loopback and unix sockets may always listen; an address that other machines reach
/// needs credentials, or plaintext by name. Errors: permission_denied; those of
/// check_credentials().
[[nodiscard]] TENDON_API Result<void> may_bind(const Security& security, const SocketAddress& place,
                                               std::string_view named, std::string_view where);
/// The same for each address of HOST, which is looked up if it is a name.
[[nodiscard]] TENDON_API Result<void> may_bind_host(const Security& security, std::string_view host,
                                                    std::string_view where);

}  // namespace tendon::v0::detail
