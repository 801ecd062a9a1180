// SPDX-License-Identifier: Apache-2.0
// How much a peer may send before it is authenticated: docs/limits.md.
#pragma once

#include <cstddef>

namespace tendon::v0::detail {

/// What a server takes before it has answered.
inline constexpr std::size_t kMaxClientHelloBytes = std::size_t{4} << 10;
/// What a handshake takes in all.
inline constexpr std::size_t kMaxHandshakeInputBytes = std::size_t{24} << 10;
/// All certificates of the peer together, as they are sent.
inline constexpr std::size_t kMaxCertificateBytes = std::size_t{16} << 10;
/// A chain of an end, two authorities and a root: nobody asks for more.
inline constexpr int kMaxIssuersBetween = 2;

}  // namespace tendon::v0::detail
