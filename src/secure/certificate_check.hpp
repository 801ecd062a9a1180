// SPDX-License-Identifier: Apache-2.0
// Explains why a peer would refuse a certificate, before it is used.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <tendon/core/error.hpp>
#include <vector>

#include "secure/certificate.hpp"

namespace tendon::v0::detail {

/// The faults of a member's certificate at `now`: in its dates, its names, its permitted uses, and
/// its chain to `authorities`, which a peer trusts exclusively. Without authorities, only a
/// self-signed one is refused. No error names a file.
[[nodiscard]] std::vector<Error> faults_of_member(const CertificateChain& chain,
                                                  std::span<X509* const> authorities,
                                                  std::chrono::sys_seconds now);
/// The names of a certificate, the best identity first: URIs, since a host may serve several, then
/// DNS names, then addresses. Empty where it names nobody, which an address alone does not change.
[[nodiscard]] std::vector<std::string> identities_in(const X509* certificate);
inline constexpr std::string_view kNamesNobody =
    "it names nobody: its subject alternative names have neither a URI nor a DNS name";
/// Why a chain does not lead to a CA that was given, by the error of X509_verify_cert().
[[nodiscard]] std::string why_untrusted(int error);
/// For an end whose certificate its peer has refused.
inline constexpr std::string_view kCertificateRefused =
    "the peer refused the certificate of this end: its log has the reason, and `tendon key check` "
    "may find it";

/// What is wrong with the certificate of a CA at `now`.
[[nodiscard]] std::vector<Error> faults_of_authority(const X509* certificate,
                                                     std::chrono::sys_seconds now);

}  // namespace tendon::v0::detail
