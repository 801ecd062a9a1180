// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <tendon/core/export.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/profile.hpp>

#include "session/resolve.hpp"

namespace tendon::v0::detail {

/// May a socket listen at `place`, which the caller knows as `named`, for peers that show what
/// `security` asks for? Everything of Tendon that binds a socket asks here, and only here it is
/// decided: loopback and unix sockets always, what other machines reach only with credentials, or
/// where plaintext was asked for by name. Errors: permission_denied; those of check_credentials();
/// invalid_argument for the name of a peer, which only a connection wants.
[[nodiscard]] TENDON_API Result<void> may_bind(const Security& security, const SocketAddress& place,
                                               std::string_view named, std::string_view where);
/// The same for each address of HOST, which is looked up if it is a name.
[[nodiscard]] TENDON_API Result<void> may_bind_host(const Security& security, std::string_view host,
                                                    std::string_view where);

}  // namespace tendon::v0::detail
