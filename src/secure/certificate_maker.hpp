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

/// invalid_argument, which says which name is wrong.
[[nodiscard]] Result<void> check_names(const CertificateNames& names);

/// A CA that signs members, and no further CA.
[[nodiscard]] Result<Credential> make_authority(const Validity& validity);
/// The certificate of a member; invalid_argument for names of check_names(), and where it would end
/// after its CA does.
[[nodiscard]] Result<Credential> make_certificate(const Credential& authority,
                                                  const CertificateNames& names,
                                                  const Validity& validity);

}  // namespace tendon::v0::detail
