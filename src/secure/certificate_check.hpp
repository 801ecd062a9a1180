// SPDX-License-Identifier: Apache-2.0
// Why a peer would refuse a certificate, before it is used.
#pragma once

#include <chrono>
#include <span>
#include <tendon/core/error.hpp>
#include <vector>

#include "secure/certificate.hpp"

namespace tendon::v0::detail {

/// What is wrong with the certificate of a member at `now`: its dates, whom it names, what it may
/// be used for, and whether a peer that trusts `authorities` alone would take it; where there are
/// none, only one that signs itself is refused. None of the errors names a file.
[[nodiscard]] std::vector<Error> faults_of_member(const CertificateChain& chain,
                                                  std::span<X509* const> authorities,
                                                  std::chrono::sys_seconds now);
/// What is wrong with the certificate of a CA at `now`.
[[nodiscard]] std::vector<Error> faults_of_authority(const X509* certificate,
                                                     std::chrono::sys_seconds now);

}  // namespace tendon::v0::detail
