// SPDX-License-Identifier: Apache-2.0
#include <tendon/session/profile.hpp>

#include "secure/credentials.hpp"
#include "session/proofs.hpp"

namespace tendon::v0 {

Result<Security> Security::load(const CredentialFiles& files, std::string peer) {
  TENDON_TRY(credentials, detail::secure::Credentials::load(files));
  Security loaded{Profile::secure, std::move(credentials), std::move(peer)};
  TENDON_CHECK(detail::check_credentials(loaded, "security.load"));
  return loaded;
}

}  // namespace tendon::v0
