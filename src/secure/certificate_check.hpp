// SPDX-License-Identifier: Apache-2.0
// Explains why a peer would refuse a certificate, before it is used.
#pragma once

#include <chrono>
#include <span>
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
/// The faults of a CA's certificate at `now`.
[[nodiscard]] std::vector<Error> faults_of_authority(const X509* certificate,
                                                     std::chrono::sys_seconds now);

}  // namespace tendon::v0::detail
