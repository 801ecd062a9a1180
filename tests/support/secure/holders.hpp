// SPDX-License-Identifier: Apache-2.0
// Credentials of one end, for tests of the other end or of the way between.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "secure/credentials.hpp"
#include "support/secure/certificates.hpp"

namespace tendon::test {

using SharedCredentials = std::shared_ptr<const detail::secure::Credentials>;

/// Makes an end that has this key alone.
inline SharedCredentials holder_of_key(const std::string& label, char fill) {
  detail::secure::CredentialParts parts;
  parts.keys.push_back(
      {label,
       detail::SecretBytes::copy_of(as_bytes(std::string(detail::kSharedKeyBytes, fill))),
       {}});
  return detail::secure::Credentials::make(std::move(parts)).value();
}

/// Makes an end that shows this certificate, then those of `issuers`, and trusts `authority`.
inline SharedCredentials holder_of(const Certificate& own, const Certificate& authority,
                                   const std::vector<const Certificate*>& issuers = {}) {
  detail::secure::CredentialParts parts;
  parts.chain.push_back(own.certificate());
  for (const Certificate* issuer : issuers) parts.chain.push_back(issuer->certificate());
  parts.certificate_key = own.key();
  parts.authorities.push_back(authority.certificate());
  return detail::secure::Credentials::make(std::move(parts)).value();
}

}  // namespace tendon::test
