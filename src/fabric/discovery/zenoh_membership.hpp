// SPDX-License-Identifier: Apache-2.0
// How the nodes of a Context enter the network of Zenoh: by the star of this host and user, or by
// named routers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tendon/core/deadline.hpp>
#include <tendon/core/result.hpp>
#include <tendon/fabric/node_options.hpp>
#include <vector>

#include "fabric/discovery/runtime_home.hpp"
#include "fabric/zenoh/late_zenoh.hpp"
#include "fabric/zenoh/star_seat.hpp"
#include "fabric/zenoh/zenoh_port.hpp"

namespace tendon::v0::detail {

/// A session that is a client, and its companions: later members end first.
struct ZenohMembership {
  std::shared_ptr<StarSeat> server;  ///< null if routers were named
  std::unique_ptr<ZenohPort> client;
  ZenohPort::Handle state;    ///< reports the client's state to the server
  LateZenoh* late = nullptr;  ///< the client, if it may still be awaited
  /// Opens a further client of the same network, for plain samples; null: `client` takes them. In
  /// the background it returns at once, as the client did.
  std::function<Result<std::unique_ptr<ZenohPort>>(Deadline)> open_for_plain = nullptr;
};

/// Accepts `HOST:PORT`, the number of a host for the port of routers (kRouterPort), `unix:/path`,
/// or Zenoh's form: "tcp/10.0.0.7:7447". Errors: invalid_argument.
[[nodiscard]] Result<std::vector<std::string>> zenoh_endpoints(
    const std::vector<std::string>& routers);
inline constexpr std::string_view kRouterPort = "7447";

/// The socket at which the nodes of a domain, of this host and user, meet. Errors: those of
/// runtime_directory().
[[nodiscard]] Result<std::string> star_path(const std::string& domain);

/// Joins the star: nodes of one domain, host and user meet at one unix socket in the runtime
/// directory. One node serves it; when that node ends another one serves, and links do not notice.
/// While it is stopped, they meet at a second one (StarServer).
///
/// `home` keeps the place in the present runtime directory.
///
/// If ZENOH_CONFIG_OVERRIDE names other endpoints, nothing is served here.
///
/// Errors:  those of open_zenoh(); unreachable while there is no runtime directory; in the
///          background, only the last one.
/// Blocks:  until the client is connected, or the deadline; in the background never.
[[nodiscard]] Result<ZenohMembership> join_star(RuntimeHome& home, const std::string& domain,
                                                DiscoveryNeed need, Deadline deadline);
/// Joins by routers. Clients use the first router that they reach, and another one when it is lost.
/// Errors and Blocks: as join_star().
[[nodiscard]] Result<ZenohMembership> join_routers(const std::vector<std::string>& routers,
                                                   DiscoveryNeed need, Deadline deadline);

}  // namespace tendon::v0::detail
