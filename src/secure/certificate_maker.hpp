// SPDX-License-Identifier: Apache-2.0
// Makes the certificates of a private CA: P-256, X.509 v3, for both ends of TLS.
#pragma once

#include <string>
#include <tendon/core/result.hpp>
#include <vector>

#include "secure/certificate.hpp"

namespace tendon::v0::detail {

/// The member that a certificate names.
struct CertificateNames {
  std::string name;                    ///< as the URI "tendon:NAME"
  std::vector<std::string> dns;        ///< hosts
  std::vector<std::string> addresses;  ///< of hosts, as text
};

/// invalid_argument, which names the wrong one.
[[nodiscard]] Result<void> check_names(const CertificateNames& names);

/// Makes a CA that signs members, and no further CA.
[[nodiscard]] Result<Credential> make_authority(const Validity& validity);
/// Makes the certificate of a member. Errors: invalid_argument for names that check_names()
/// refuses, and for a validity beyond that of the CA.
[[nodiscard]] Result<Credential> make_certificate(const Credential& authority,
                                                  const CertificateNames& names,
                                                  const Validity& validity);

}  // namespace tendon::v0::detail
