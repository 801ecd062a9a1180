// SPDX-License-Identifier: Apache-2.0
// Compiled where Tendon is built without Zenoh.
#include "fabric/zenoh/zenoh_session.hpp"

namespace tendon::v0::detail {

Result<void> check_zenoh_can_run() { return {}; }

Result<std::string> zenoh_version() {
  return Error{ErrorCode::not_supported, "fabric.zenoh",
               "this build has no Zenoh (" TENDON_ZENOH_WHY
               "): build with -DTENDON_ZENOH=ON, which needs cargo (Debian 12: cargo-web), or name "
               "addresses of nodes in NodeOptions::peers"};
}

Result<std::unique_ptr<ZenohPort>> try_zenoh(const ZenohOptions& /*options*/) {
  return zenoh_version().error();
}

std::uint64_t zenoh_puts() { return 0; }

}  // namespace tendon::v0::detail
