// SPDX-License-Identifier: Apache-2.0
// How the nodes of a Context come into the network of Zenoh: by the star of this host and user, or
// by routers that were named.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <vector>

#include "fabric/star_server.hpp"
#include "fabric/zenoh_port.hpp"

namespace tendon::v0::detail {

/// A session that is a client, and what it needs beside it: what stands later here ends first.
struct ZenohMembership {
  std::shared_ptr<StarServer> server;  ///< null where routers were named
  std::unique_ptr<ZenohPort> client;
  ZenohPort::Handle state;  ///< tells the server what the client sees
  /// A further client of the same network, for plain samples; null: `client` takes them.
  std::function<Result<std::unique_ptr<ZenohPort>>(Deadline)> open_for_plain = nullptr;
};

/// Each is `HOST:PORT`, `unix:/path`, or as Zenoh writes it: "tcp/10.0.0.7:7447". Errors:
/// invalid_argument.
[[nodiscard]] Result<std::vector<std::string>> zenoh_endpoints(
    const std::vector<std::string>& routers);

/// The socket at which the nodes of a domain, of this host and user, meet. Errors: those of
/// runtime_directory().
[[nodiscard]] Result<std::string> star_path(const std::string& domain);

/// Nodes of one domain, host and user meet at one unix socket in the runtime directory. One node
/// serves it; when that node goes another one serves, and links do not notice.
///
/// Where ZENOH_CONFIG_OVERRIDE names other endpoints, nothing is served here.
///
/// Errors: those of runtime_directory() and open_zenoh().
/// Blocks: until the client is connected, or the deadline.
[[nodiscard]] Result<ZenohMembership> join_star(const std::string& domain, Deadline deadline);
/// Clients use the first router that they reach, and another one when it is lost.
[[nodiscard]] Result<ZenohMembership> join_routers(const std::vector<std::string>& routers,
                                                   Deadline deadline);

}  // namespace tendon::v0::detail
