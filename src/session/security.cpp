// SPDX-License-Identifier: Apache-2.0
#include <tendon/session/profile.hpp>

#include "secure/credentials.hpp"

namespace tendon::v0 {

Result<Security> Security::load(const CredentialFiles& files, std::string peer) {
  TENDON_TRY(credentials, detail::secure::Credentials::load(files));
  return Security{Profile::secure, std::move(credentials), std::move(peer)};
}

}  // namespace tendon::v0
