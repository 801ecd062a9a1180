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
  if (is_secure && security.credentials != nullptr)
    return security.credentials->check_process(where);
  if (is_secure == (security.credentials != nullptr)) return {};
  return Error{ErrorCode::invalid_argument, where,
               is_secure ? "profile 'secure' needs credentials: Security::load() makes it"
                         : "credentials were given with profile '" +
                               std::string(to_string(security.profile)) +
                               "', which does not use them: leave one of the two out"};
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
