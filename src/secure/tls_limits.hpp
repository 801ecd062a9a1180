// SPDX-License-Identifier: Apache-2.0
// How much a peer may send before it is authenticated, and how long a session is used:
// docs/limits.md.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tendon::v0::detail {

/// Most bytes that a server takes before it has answered.
inline constexpr std::size_t kMaxClientHelloBytes = std::size_t{4} << 10;
/// Most bytes that a handshake takes in all.
inline constexpr std::size_t kMaxHandshakeInputBytes = std::size_t{24} << 10;
/// Most bytes of all certificates of the peer together, as they are sent.
inline constexpr std::size_t kMaxCertificateBytes = std::size_t{16} << 10;
/// For a chain of a member, two authorities and a root; nobody needs more.
inline constexpr int kMaxIssuersBetween = 2;

/// The side that connected renews the session of a link at this age, or when the link has carried
/// this many bytes of bodies since the last renewal.
inline constexpr std::chrono::seconds kRenewalAge{3600};
inline constexpr std::uint64_t kRenewalBytes = std::uint64_t{1} << 40;
/// The time from the first word of a renewal until both ends have the session. A control lane waits
/// as long as a program takes no messages, so seconds are not enough.
inline constexpr std::chrono::seconds kRenewalDeadline{600};
/// More renewals begun by a peer within kRenewalsWithin are an attack on our processor.
inline constexpr std::uint32_t kMaxRenewals = 64;
inline constexpr std::chrono::seconds kRenewalsWithin{32};
/// The least time between two looks at files of credentials.
inline constexpr std::chrono::seconds kCredentialLook{60};

}  // namespace tendon::v0::detail
