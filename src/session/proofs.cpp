// SPDX-License-Identifier: Apache-2.0
#include "session/proofs.hpp"

#include "secure/credentials.hpp"

namespace tendon::v0::detail {

PeerIdentity with_proofs(PeerIdentity claims, const Proofs& proofs) {
  claims.identity = proofs.identity;
  // No name of a certificate begins like this, because names_in() leaves such names out.
  if (proofs.is_by_key())
    claims.proof = IdentityProof::key;
  else if (!proofs.identity.empty())
    claims.proof = IdentityProof::certificate;
  else
    claims.proof =
        proofs.host == Proofs::Host::same_user ? IdentityProof::local : IdentityProof::none;
  return claims;
}

Result<void> check_credentials(const Security& security, std::string_view where) {
  const bool is_secure = security.profile == Profile::secure;
  const bool has_credentials = security.credentials != nullptr;
  const std::string profile = "profile '" + std::string(to_string(security.profile)) + "'";
  if (is_secure != has_credentials)
    return Error{ErrorCode::invalid_argument, where,
                 is_secure ? profile + " needs credentials: Security::load() reads them"
                           : "credentials were given with " + profile +
                                 ", which does not use them: leave one of the two out"};
  if (has_credentials) TENDON_CHECK(security.credentials->check_process(where));
  if (security.peer.empty() || (has_credentials && security.credentials->has_certificate()))
    return {};
  return Error{ErrorCode::invalid_argument, where,
               "peer is a name in a certificate, and " +
                   (has_credentials ? "this end has none to show" : profile + " uses none") +
                   ": load cert, cert_key and ca with it (Security::load()), or leave peer '" +
                   security.peer + "' out"};
}

Result<void> refuse_secure(const Security& security, std::string_view where,
                           std::string_view what) {
  if (security.profile != Profile::secure) return check_credentials(security, where);
  return Error{ErrorCode::not_supported, where,
               std::string(what) +
                   " have no profile 'secure' yet: pipes, listeners and servers "
                   "have (docs/keys.md)"};
}

}  // namespace tendon::v0::detail
