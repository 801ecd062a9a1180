// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "secure/tls_handshake.hpp"
#include "transport/link_renewal.hpp"

namespace tendon::v0::detail {

/// How a link keeps proving the facts of its first session: `identity`, shown by `credential`, by
/// the means of `proof`. `credentials`: null where there is no TLS.
[[nodiscard]] inline LinkRenewalOptions renewals_of(
    std::shared_ptr<const secure::Credentials> credentials, secure::TlsHandshake::Role role,
    const std::string& identity, const std::string& credential, secure::PeerProof proof,
    std::uint32_t lanes) {
  LinkRenewalOptions options;
  options.terms.role = role;
  options.terms.credentials = std::move(credentials);
  // Holders of one key are one peer. A client with a certificate stays one with some certificate.
  options.terms.own_identity =
      proof == secure::PeerProof::key ? identity : std::string(secure::kByCertificate);
  options.terms.identity = identity;
  options.terms.credential = credential;
  options.terms.proof = proof;
  options.lanes = lanes;
  return options;
}

}  // namespace tendon::v0::detail
