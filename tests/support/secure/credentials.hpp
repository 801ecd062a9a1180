// SPDX-License-Identifier: Apache-2.0
// Credentials that lie in no file.
#pragma once

#include <memory>
#include <string>
#include <tendon/session/profile.hpp>
#include <utility>
#include <vector>

#include "secure/credentials.hpp"
#include "support/secure/certificates.hpp"

namespace tendon::test {

/// Makes a key of bytes that are all `fill`.
inline detail::SharedKey shared_key(const std::string& label, char fill) {
  return {label,
          detail::SecretBytes::copy_of(as_bytes(std::string(detail::kSharedKeyBytes, fill))),
          {}};
}

inline std::shared_ptr<const detail::secure::Credentials> with_key(const std::string& label,
                                                                   char fill) {
  detail::secure::CredentialParts parts;
  parts.keys.push_back(shared_key(label, fill));
  return detail::secure::Credentials::make(std::move(parts)).value();
}

/// Makes the shared key "fleet" of bytes that are all `fill`.
inline std::shared_ptr<const detail::secure::Credentials> fleet_key(char fill = 'a') {
  return with_key("fleet", fill);
}

/// Lists the end's own certificate, then those of `issuers`.
inline detail::secure::CredentialParts parts_of(const Certificate& own,
                                                const std::vector<const Certificate*>& issuers,
                                                const Certificate& authority) {
  detail::secure::CredentialParts parts;
  parts.chain.push_back(own.certificate());
  for (const Certificate* issuer : issuers) parts.chain.push_back(issuer->certificate());
  parts.certificate_key = own.key();
  parts.authorities.push_back(authority.certificate());
  return parts;
}

/// A member of a private CA with two intermediate authorities: a chain of three, the longest that
/// is allowed.
inline std::shared_ptr<const detail::secure::Credentials> chain_of_three(
    const CertificateText& text = {}) {
  static const Certificate kRoot = Certificate::authority("a root authority");
  static const Certificate kFirst = kRoot.sign_authority("an intermediate authority, the first");
  static const Certificate kSecond = kFirst.sign_authority("an intermediate authority, the second");
  return detail::secure::Credentials::make(parts_of(kSecond.sign(text), {&kSecond, &kFirst}, kRoot))
      .value();
}

inline std::shared_ptr<const detail::secure::Credentials> with_certificate(
    const Certificate& own, const Certificate& authority) {
  return detail::secure::Credentials::make(parts_of(own, {}, authority)).value();
}

}  // namespace tendon::test
