// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/session/profile.hpp>

#include "runtime/context_core.hpp"

namespace tendon::v0::detail {

/// A link to the Context that listens at an address, and the right to open one pipe there.
struct Connected {
  std::shared_ptr<Link> link;
  Nonce128 ticket;
  /// This side's address of the connection, without a port: of the interface that reaches the
  /// peer. Empty for a unix socket.
  std::string local_host;
};

/// Finds or makes the link. Runs in the calling thread, which makes progress meanwhile, so that
/// connecting to a listener of the same Context works.
[[nodiscard]] Result<Connected> connect(ContextCore& context, std::string_view address,
                                        Profile profile, Deadline deadline);

}  // namespace tendon::v0::detail
