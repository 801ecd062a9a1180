// SPDX-License-Identifier: Apache-2.0
#include "secure/ipsec_mb_sealer.hpp"

namespace tendon::v0::detail::secure {

Result<std::unique_ptr<Sealer>> make_ipsec_mb_sealer(const AeadKey& /*key*/) {
  return Error{ErrorCode::not_supported, "secure.sealer",
               "this build has no libipsec-mb (" TENDON_IPSEC_MB_WHY ")"};
}

std::string_view ipsec_mb_version() { return {}; }

}  // namespace tendon::v0::detail::secure
